"""The model machine: sizes and costs from which the compiler's limits follow, with their units in their names.

These numbers are the same on every machine. Whatever decides in which order terms are added - accumulators, blocks of
a reduction, numbers of partial results and chunks of reductions - follows from them and from shapes alone, never from
`loopir.target.Target`, the caches and processors at hand. So results are equal bit for bit whatever these are, but for
what `loopir.target` says. What changes no value (tiles, prefetches, chunks of other loops) may follow from `Target`,
whose defaults these are.

A limit that belongs to one algorithm stands there, as an expression of these numbers if they are its reason. What an
operation costs stands with the operation (`Op.cost`).

Sources. Sizes are those of Intel's Skylake servers and AMD's Zen 4, as their optimization manuals state them. Times are
estimates for one such core, rounded to powers of two or ten: mostly their ratios matter, such as that of operations to
bytes (the balance of Williams, Waterman and Patterson, Roofline, 2009).
"""

from __future__ import annotations

# --- sizes ------------------------------------------------------------------------------------------------------------

LINE_BYTES = 64  # of a cache line, and of the widest vector register
L1_BYTES = 32 << 10  # of the first-level data cache
L2_BYTES = 1 << 20  # of the second-level cache
VECTOR_ELEMENTS = LINE_BYTES // 4  # of 32 bits in a vector; a row of fewer does not fill one
INTERLEAVED = 4  # independent chains that hide the latency of an addition, of a comparison, or of a load
ACCUMULATORS = INTERLEAVED * VECTOR_ELEMENTS  # of a row that is reduced, and elements of an array in registers
LONG_ROW = ACCUMULATORS * 2  # elements of a row from which on its loop costs more than what comes before and after it
L1_ELEMENTS, L2_ELEMENTS = L1_BYTES // 4, L2_BYTES // 4  # of 32 bits
BLOCK_ELEMENTS = L1_ELEMENTS // 8  # of a block that stays in the first-level cache beside several others
CACHED_ELEMENTS = L1_ELEMENTS // 2  # of a block that stays in the first-level cache beside one other
SCRATCH_BYTES = L2_BYTES // 4  # of all scratch memory of a kernel, which is on the stack

# --- time -------------------------------------------------------------------------------------------------------------

OPS_PER_NANOSECOND = 32  # simple operations of one core, in vectors
BYTES_PER_NANOSECOND = 8  # that one core moves from memory, or from another core's cache
OPS_PER_BYTE = OPS_PER_NANOSECOND // BYTES_PER_NANOSECOND
COSTLY_OPS = 8  # simple operations in the time of a costly one, such as an exponential, in vectors
CALL_OPS = 100  # simple operations of scalars in the time of a call, or of a schedule's step
CHUNK_OPS = 1 << 17  # of a chunk that pays for one more thread
LOCAL_OPS = (
    16 * CHUNK_OPS
)  # of a thread's share up to which its arrays, in another thread's cache, cost more than balance
PARALLEL_CHUNK_ELEMENTS = CHUNK_OPS // COSTLY_OPS  # the same in elements, each of the cost of a costly operation
STEP_NANOSECONDS = 10.0  # of any step, for its call
WAKE_NANOSECONDS = 10_000.0  # until a thread that sleeps works on a step
SPIN_NANOSECONDS = 100_000.0  # that a thread waits for work before it sleeps: longer than Python between two calls
MESSAGE_BYTES_PER_NANOSECOND = 1.0  # between processes
MESSAGE_START_BYTES = 1 << 15  # sent in the time that a message takes to start and to end
MAX_UNINTERRUPTED_OPS = 1 << 26  # of a loop in which signals are not looked for: some milliseconds
MIN_REUSE = 16  # uses of a copy that pay for making it

# --- division among threads -------------------------------------------------------------------------------------------

TASKS = 8  # chunks that suffice for the processors of a small machine
CHUNKS = TASKS * 4  # into which loops are cut, for balance
MAX_CHUNKS = CHUNKS * 4  # more chunks mean more lines that two threads write

# --- length of code, and time of the compilation ----------------------------------------------------------------------

MAX_UNROLLED = VECTOR_ELEMENTS // 2  # iterations of a loop that is unrolled rather than vectorized
MAX_UNROLLED_TERMS = MAX_UNROLLED * 4  # of a reduction that is unrolled within a vector loop
MAX_INSTRUCTIONS = 1 << 11  # per element of a loop: LLVM's time is superlinear
MAX_PIECES = 8  # parts of a loop that differ in their sources, each with a body or with a test in the body
MAX_NEST_BUFFERS = 48  # arrays of a loop nest
MAX_CANDIDATES = 64  # steps with which each step is compared, so that the time of the compilation stays linear
MAX_PRODUCERS = 12  # instructions before another that are examined
MAX_ROUNDS = 8  # of passes that are repeated until nothing changes
MIN_GEMM_FEATURES = 4  # rows or columns of a matrix from which on a product with it pays for packing the other one

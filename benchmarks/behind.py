"""Why rows are behind, by their names: written by hand, from measurements, and printed with the tables."""

_TWO_SORTS = "JAX's values, which are kept, are those of two stable sorts of all (random word, place) pairs."
_PYTHON = (
    "A call costs 2 us of Python, in which types, shapes and weakness are looked up and the result is wrapped; NumPy's "
    "is C alone."
)

WHY: dict[str, str] = {
    "x + y, 1e5": "20.0 us on one thread, 13.5 us on two, beside 13.3 us of NumPy's, alone on the machine.",
    "power, 1e6": "On one thread 1.28 ns for an element, beside 0.67 ns of NumPy's; two threads are about level.",
    "matmul, 256 x 256": "On one thread it takes 1.06 times the limit: what is lost is lost between two threads.",
    "matmul, 1024 x 1024": "Within the spread: 0.97 to 1.0 in several runs; 1.14 times the limit on one thread.",
    "matmul, 512 x 512, s8 to s32": "Five pieces of code (two copies that widen, the inner product, two drivers) "
    "take 3 to 10 ms each to compile.",
    "real FFT, 1e6": "Its routines are 9 to 12 modules of 4 to 10 ms of LLVM's code generation each.",
    "eigh, 128 x 128": "It is LAPACK's syevd, in the library that SciPy brings; PyTorch brings another one.",
    "sum, 4096 x 1024": "Runs differ: one before had 194 us beside 205 us of PyTorch's.",
    "max of columns, 4096 x 1024": "Runs differ: one before had 523 us beside 871 us of JAX's.",
    "matmul, 512 x 512, bf16": "Runs differ: one before had 749 us beside 694 us of PyTorch's.",
    "inner product, 1e6": "Runs differ: one before had 53 us beside 46 us of PyTorch's.",
    "FFT and back, 256 x 256": "Runs differ: one before had 334 us beside 303 us of PyTorch's.",
    "permutation, 1e6": _TWO_SORTS,
    "choice of 1e5 of 1e6 without replacement": _TWO_SORTS,
    "gamma numbers, 1e5": "JAX's values, which are kept, take a key of its own for each number, and a hash of 20 "
    "rounds for each that its loop rejects; NumPy's generator takes a multiplication.",
    "gather of 1e6 elements of 1e6": "A plain loop in C, AVX-512 gathers and both mixed take 1.02 to 1.07 ms on one "
    "thread, with prefetching 2.05 ms.",
    "top 10 of rows, 64 x 10000": "10.2 of its 14.4 MB are four temporaries as large as the operand.",
    "sort of columns, 1000 x 1000": "8 of its 19.7 MB are two temporaries as large as the operand.",
    "convolution 5 x 5, 16 x 16 x 16, 32 to 64": "LLVM takes 18 ms, half of that for the routine of the inner product.",
    "eager: a + a, 1e3": _PYTHON,
    "eager: a[1:], 1e3": "0.4 us of Python: the index is read and the result is wrapped; NumPy's call is C alone.",
    "eager: sin(a), 1e3": _PYTHON,
    "eager: sum(a, 1), 30 x 30": "5 us of Python: axes, types and weakness; NumPy's part is 1.5 us.",
    "eager: a @ a, 32 x 32": "6 us of Python: shapes, types and weakness; NumPy's part is 1.6 us.",
    "import": "93 ms of processor time beside NumPy's 86: named tuples take 20 to 24 of them, dataclasses 16.",
}

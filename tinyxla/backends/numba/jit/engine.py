"""JIT compilation: LLVM text to the addresses of native functions.

LLVM is called directly (`binding`), without the type inference of Numba's code generator. All object files are loaded
into one MCJIT engine, which takes some thirty microseconds for each. Engines, and with them all addresses, live until
the process ends. Object code is kept on disk (`tinyxla.cache`), under the SHA-256 of its inputs: the loop IR up to
names or the LLVM text, the processor and its features, the versions of llvmlite and LLVM, and the source of the modules
that emit code.

The unit of compilation is one kernel or one routine. `start_kernel` and `define_kernel` only queue a unit; threads
compile, and the first address that is asked for waits until all queued units are loaded. An exception may interrupt any
step, as Ctrl-C does: units then stay queued, and the next request for an address finishes them.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import math
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import llvmlite
import llvmlite.binding as llvm

from tinyxla import cache
from tinyxla.backends.numba.emit import (
    half_builtins,
    llvm_templates,
    llvm_types,
    matrix_unit,
    operations,
    printer,
    scalar,
    vector_variants,
)
from tinyxla.backends.numba.emit.llvm_templates import expand_macros
from tinyxla.backends.numba.emit.operations import UnsupportedKernel
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import binding
from tinyxla.backends.numba.jit.binding import Compilation, LLVMError, Owner, symbol_address
from tinyxla.backends.numba.jit.object_files import packed, unpacked
from tinyxla.compiler import costs
from tinyxla.compiler.costs import MAX_UNROLLED
from tinyxla.errors import TinyxlaError
from tinyxla.loopir.ir import fingerprint, loop_ir, operations as ir_operations, types
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import Call, Compute, Kernel, Load, Loop, Multiply, Statement, Store
from tinyxla.loopir.ir.operations import is_vector_code
from tinyxla.loopir.passes import slp_vectorize, split_nan_check, vectorize_loops
from tinyxla.loopir.passes.slp_vectorize import MIN_LANES, slp_vectorized
from tinyxla.loopir.passes.vectorize_loops import are_vectorizable, kinds_of, vectorized
from tinyxla.loopir.target import has_feature, has_masks, processor, vector_bytes
from tinyxla.ops import ops
from tinyxla.runtime.threads import Task, get_num_threads
from tinyxla.scalar_math import elementary
from tinyxla.tracing.config import config

_LLVM_OPTIONS = {  # LLVM's defaults, and the values for fast compilation
    "enable-epilogue-vectorization": ("true", "false"),
    "disable-lsr": ("false", "true"),
    "dag-maps-huge-region": ("1000", "200"),
}
_LLVM_VERSIONS = range(14, 23)  # that know these options
_MIN_CARRIED_ARRAY = 16  # loop-carried values from which on a loop carries an array, element by element
_LONG_BODY = 100  # statements of a loop from which on it is long
_SWITCH_SECONDS = 0.0005  # between two threads while one of them compiles
_LITTLE_WORK = 1000  # simple operations of a kernel up to which LLVM's loop passes take longer than they can save
_MIN_CARRIED_STRAIGHT_LINE = 96  # loop-carried values from which on nearly all of them are spilled
_ERRORS = (UnsupportedKernel, LLVMError)  # of a unit; others may come from outside, such as from a signal handler
_Pipeline = Literal["calls", "final", "inline", "straight-line", "vectors", "loops", "slp"]  # see `_optimize`
_EMITTERS = (  # the modules that decide which code a kernel becomes
    costs,
    fingerprint,
    ir_operations,
    llvm_templates,
    llvm_types,
    loop_ir,
    matrix_unit,
    operations,
    printer,
    scalar,
    slp_vectorize,
    split_nan_check,
    types,
    vector_variants,
    vectorize_loops,
)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counts since the process began."""

    memory_hits: int = 0
    disk_hits: int = 0
    compilations: int = 0


class _TargetMachines(dict[int, int]):
    """The target machines of a thread by optimization level: LLVM takes milliseconds for the first code of each."""

    def __missing__(self, level: int) -> int:
        made = self[level] = _target_machine(level)
        return made


@dataclass(eq=False, slots=True)
class _Unit:
    """A compilation unit: a module on its way from text to the addresses of its functions `names`."""

    key: str
    names: Sequence[str]  # with the key as suffix in the text, since all modules share an engine
    text: Callable[[], str]
    pipeline: _Pipeline = "loops"
    symbols: Mapping[str, str] = field(default_factory=dict[str, str])  # under which other native code calls functions
    code: bytes | None = None
    called: Sequence[str] = ()  # external functions
    is_on_disk: bool = False
    addresses: dict[str, int] | None = None
    error: Exception | None = None


_lock = threading.RLock()
_builtin_addresses: dict[str, dict[str, int]] = {}
_addresses: dict[str, dict[str, int]] = {}
_in_flight: dict[str, _Unit] = {}
_queue: deque[_Unit] = deque()  # units in flight that no thread compiles yet
_tasks: list[Task] = []  # compiling threads
_machines: list[_TargetMachines] = []  # in use by no thread
_info = CacheInfo()
_usual_interval: float | None = None  # the interpreter's switch interval, while threads compile
_is_fast: bool | None = False  # whether LLVM has the options for fast compilation; None after an interrupted change
_is_held_for_fork = False


def _before_fork() -> None:
    """Wait for compilations before a fork: the child would have LLVM's locks, and no thread to release them."""
    global _is_held_for_fork
    _is_held_for_fork = not _is_owned()  # else it happens within, in a signal's handler
    _wait_for_fork()


def _wait_for_fork() -> None:
    try:
        if not _is_owned():
            _lock.acquire()
        _join()
    except BaseException:  # a signal's handler raised it: Python reports it, and forks in spite of it
        _wait_for_fork()
        raise


def _is_owned() -> bool:
    """Whether this thread has the lock."""
    return _lock._is_owned()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def _after_fork() -> None:
    if _is_held_for_fork and _is_owned():
        _lock.release()


def _renew_lock() -> None:
    """In the child of a fork, whose only thread is another to it than the one that took the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_renew_lock)


@atexit.register
def _before_exit() -> None:
    """The process must not end while LLVM is at work."""
    with _lock:
        _join()


def compile_kernel(kernel: Kernel, is_builtin: bool = False) -> int:
    """Compile a kernel; returns the address of `void (void **table, int64_t first, int64_t last)`. Kernels that are
    equal up to names share one. A builtin kernel belongs to the library, and is never forgotten."""
    return start_kernel(kernel, is_builtin)()


def start_kernel(kernel: Kernel, is_builtin: bool = False, extent: int = 0, work: int = 0) -> Callable[[], int]:
    """Queue a kernel for compilation; returns a function that waits for it and gives its address. `extent` are the
    iterations of its outermost loop, and `work` is how many simple operations it computes, where they are known."""
    pipeline = _pipeline(kernel.body, is_builtin, extent, work)
    key = _key(kernel_fingerprint(kernel), _emission_version(), pipeline)
    builtin = _builtin_addresses.get(key)
    if builtin is not None:
        return lambda: builtin["kernel"]
    text = functools.partial(_text, kernel, pipeline, _unique("kernel", key))
    unit = _Unit(key, ["kernel"], text, pipeline)
    in_flight = _submit(unit)

    def address() -> int:
        result = _wait_for(in_flight)
        if is_builtin:
            _builtin_addresses[key] = result
        return result["kernel"]

    return address


def _unique(name: str, key: str) -> str:
    return f"{name}_{key[:32]}"


def kernel_text(
    kernel: Kernel, is_builtin: bool = False, extent: int = 0, work: int = 0, is_routine: bool = False
) -> str:
    """A kernel as LLVM text for this processor; see `start_kernel`."""
    return _text(kernel, _pipeline(kernel.body, is_builtin, extent, work), is_routine=is_routine)


def _text(kernel: Kernel, pipeline: _Pipeline, name: str | None = None, is_routine: bool = False) -> str:
    if pipeline in ("inline", "vectors"):
        kernel = vectorized(kernel, vector_bytes(), has_masks())
    elif pipeline == "slp":
        kernel = slp_vectorized(kernel, vector_bytes())
    return print_llvm(kernel, name, has_masks(), vector_bytes(), pipeline != "final", is_routine)


def _is_long(statements: Sequence[Statement]) -> bool:
    """Whether a loop is long straight-line code, or has so many loop-carried values that it must be."""
    loops = [x for x in statements if isinstance(x, Loop)]
    return any(len(x.carried) >= _MIN_CARRIED_ARRAY or len(x.body) >= _LONG_BODY or _is_long(x.body) for x in loops)


def _pipeline(statements: Sequence[Statement], is_builtin: bool, extent: int = 0, work: int = 0) -> _Pipeline:
    if _only_calls_routines(statements):
        return "calls"
    if is_vector_code(statements):
        return "final"
    if is_builtin and _is_explicitly_vectorized(statements):
        return "inline"
    if extent == 1 and all(_iterations(x.body) <= MAX_UNROLLED for x in statements if isinstance(x, Loop)):
        return "straight-line"
    is_enabled = "vectorize-loops" not in config.disabled_passes
    if is_enabled and are_vectorizable(statements, vector_bytes(), has_masks(), is_scalar=extent == 1):
        return "vectors"
    if not _is_long(statements) or not (_is_explicitly_vectorized(statements) or _is_straight_line(statements)):
        return "straight-line" if 0 < work <= _LITTLE_WORK else "loops"
    has_vectors = "slp-vectorize" not in config.disabled_passes and _stored_elements(statements) >= MIN_LANES
    return "slp" if has_vectors else "straight-line"


def _stored_elements(statements: Sequence[Statement]) -> int:
    """How many elements of an array a kernel stores at known indices, of the array of which it stores most."""
    indices: dict[str, set[int]] = {}
    waiting = list(statements)
    for x in waiting:
        if isinstance(x, Store) and isinstance(x.index, int):
            indices.setdefault(x.buffer.name, set()).add(x.index)
        waiting += x.body if isinstance(x, Loop) else ()
    return max(map(len, indices.values()), default=0)


def _iterations(statements: Sequence[Statement]) -> float:
    """How often the innermost statements run, infinite if it is unknown or they call routines."""
    counts = [1.0]
    for x in statements:
        if isinstance(x, Call):
            return math.inf
        if isinstance(x, Loop):
            counts.append(math.inf if x.trip_count is None else x.trip_count * _iterations(x.body))
    return max(counts)


def _is_straight_line(statements: Sequence[Statement]) -> bool:
    """Whether the innermost loops of a kernel are straight-line code with very many loop-carried values."""
    loops = [x for x in statements if isinstance(x, Loop)]
    inner = [y for x in loops for y in x.body if isinstance(y, Loop)]
    if not loops or not inner:
        return all(len(x.carried) >= _MIN_CARRIED_STRAIGHT_LINE for x in loops)
    return _is_straight_line(inner)


def _is_explicitly_vectorized(statements: Sequence[Statement]) -> bool:
    """Whether LLVM's loop passes would gain nothing: every innermost loop is sequential, or of integers and becomes one
    over vectors."""
    loops = [x for x in statements if isinstance(x, Loop)]
    inner = [x for x in loops if not any(isinstance(y, (Loop, Call)) for y in x.body)]
    are_vectors = all(x.sequential or (_is_integer_code(x.body) and kinds_of(x)) for x in inner)
    return are_vectors and all(_is_explicitly_vectorized(x.body) for x in loops)


def _is_integer_code(statements: Sequence[Statement]) -> bool:
    return all(x.result.type[0] in "pus" for x in statements if isinstance(x, Load | Compute))


def _only_calls_routines(statements: Sequence[Statement]) -> bool:
    """Whether a kernel computes nothing itself, but calls routines."""
    waiting, calls = list(statements), False
    for x in waiting:
        if isinstance(x, (Load, Multiply)):
            return False
        calls = calls or isinstance(x, Call)
        waiting += x.body if isinstance(x, Loop) else ()
    return calls


def compile_llvm(text: str, names: Sequence[str], is_cold: bool = False) -> dict[str, int]:
    """Compile LLVM text (with the macros of `llvm_templates`); returns the addresses of its functions `names`.

    Of text that `is_cold` few instructions are executed: it is compiled without optimization. The code is kept on disk:
    the text must not contain addresses of this process. An external function that the process does not have is an
    `UnsupportedKernel`, which names it.
    """
    return dict(_wait_for(_submit(_module(text, names, is_cold=is_cold))))


def start_function(text: str, name: str, is_cold: bool = False) -> Callable[[], int]:
    """Queue LLVM text; returns a function that waits for the address of its function `name`. See `compile_llvm`."""
    in_flight = _submit(_module(text, [name], is_cold=is_cold))
    return lambda: _wait_for(in_flight)[name]


def start_llvm(text: str, names: Sequence[str], symbols: Mapping[str, str]) -> Callable[[], Mapping[str, int]]:
    """Queue LLVM text, optimized by hand, and let a thread compile it meanwhile; returns a function that waits for the
    addresses of its functions `names`. `symbols` are those under which other native code calls some of them."""
    unit = _module(text, names, is_optimized=True)
    unit.symbols = symbols
    in_flight = _submit(unit)
    with _lock:
        _start_tasks(min(get_num_threads() - 1, len(_queue)))
    return lambda: _wait_for(in_flight)


def define_kernel(symbol: str, kernel: Kernel, is_cold: bool = False) -> None:
    """Queue a builtin kernel for compilation, and define a symbol for it. It is called with the addresses of its
    arguments and that of its parameters. Of a kernel that `is_cold` few instructions are executed: it is compiled
    without optimization."""
    usual = _pipeline(kernel.body, is_builtin=True)
    pipeline = "calls" if is_cold else usual
    key = _key("routine", kernel_fingerprint(kernel), _emission_version(), pipeline)
    text = functools.partial(_text, kernel, usual, _unique("kernel", key), is_routine=True)
    _submit(_Unit(key, ["kernel"], text, pipeline, {"kernel": symbol}))


def _module(text: str, names: Sequence[str], is_optimized: bool = False, is_cold: bool = False) -> _Unit:
    pipeline: _Pipeline = "calls" if is_cold else "final" if is_optimized else "loops"
    key = _key(_emission_version(), text, *names, pipeline)

    def full() -> str:
        return re.sub(rf"@({'|'.join(names)})\b", lambda result: _unique(result[0], key), expand_macros(text))

    return _Unit(key, names, full, pipeline)


def define_symbol(name: str, address: int) -> None:
    """Define a symbol that native code may call."""
    binding.add_symbol(name, address)


def function_address(name: str) -> int:
    """The address of a symbol; 0 if it is not defined."""
    with _lock:
        if any(name in unit.symbols.values() for unit in _in_flight.values()):
            _finish_all()
    return symbol_address(name)


def cache_info() -> CacheInfo:
    """Counts of compilations and of cache hits in this process."""
    return _info


def forget() -> None:
    """Forget what was compiled in this process; the cache on disk stays. Addresses handed out stay valid."""
    with _lock:
        _addresses.clear()


def _submit(unit: _Unit) -> _Unit:
    """Queue a unit, unless an equal one is loaded, on disk, or in flight; returns the one that counts."""
    with _lock:
        unit.addresses = _addresses.get(unit.key)
        in_flight = unit if unit.addresses is not None else _in_flight.get(unit.key)
        if in_flight is not None:
            _count(memory_hits=1)
            _define_symbols(unit)
            return in_flight
        result = unpacked(cache.read(unit.key) or b"")
        if result is not None:
            unit.code, unit.called = result
            unit.is_on_disk = True
            _in_flight[unit.key] = unit
            _count(disk_hits=1)
            return unit
        _compiler()
        _set_fast_options(True)
        _in_flight[unit.key] = unit
        _count(compilations=1)
        if unit.pipeline == "loops":  # what takes longest goes first, lest a thread waits in the end
            _queue.appendleft(unit)
        else:
            _queue.append(unit)
        _start_tasks(min(get_num_threads(), len(_queue)) - 1)  # and one once a thread waits for all
        return unit


def _wait_for(unit: _Unit) -> dict[str, int]:
    """The addresses of a unit's functions, once it is loaded."""
    with _lock:
        if unit.addresses is None and unit.error is None:
            _finish_all()
    if unit.addresses is None:
        raise _error(unit)
    return unit.addresses


def _error(unit: _Unit) -> Exception:
    """The error of a unit with the user's line, which the thread that compiled it does not know."""
    if isinstance(unit.error, TinyxlaError):
        unit.error.add_user_line()
    return unit.error or AssertionError(unit.key)


def _finish_all() -> None:
    """Compile all queued units, and load all units in flight, those that define symbols first."""
    _start_tasks(min(get_num_threads(), len(_queue)))
    _join()
    remaining = [unit for unit in _in_flight.values() if unit.code is None and unit.error is None]
    if remaining:  # there was no thread, or an exception came between
        _set_fast_options(True)
        _queue.extend(remaining)
        _compile_waiting(_ERRORS)
    _set_fast_options(False)
    _switch_often(False)
    units = sorted(_in_flight.values(), key=lambda unit: not unit.symbols)
    for unit in units:
        try:
            _load(unit)
        except _ERRORS as error:
            unit.error = error
    _in_flight.clear()
    for unit in units:
        if unit.symbols and unit.error:
            raise _error(unit)


def _start_tasks(count: int) -> None:
    """Have `count` threads compile. Exceptions from outside reach the thread that waits, not these."""
    _tasks[:] = [task for task in _tasks if not task.is_over]
    if len(_tasks) < count:
        _switch_often(True)
    while len(_tasks) < count:
        _tasks.append(Task(functools.partial(_compile_waiting, (Exception,))))
        _tasks[-1].start()


def _switch_often(is_often: bool) -> None:
    """Have the interpreter switch between threads ten times as often as usual, or as usual again: a thread that
    compiles waits for the interpreter's lock after each of LLVM's functions, while another builds the program."""
    global _usual_interval
    if is_often and _usual_interval is None:
        _usual_interval = sys.getswitchinterval()
        sys.setswitchinterval(min(_usual_interval, _SWITCH_SECONDS))
    elif not is_often and _usual_interval is not None:
        sys.setswitchinterval(_usual_interval)
        _usual_interval = None


def _join() -> None:
    for task in tuple(_tasks):
        task.wait()
    _tasks.clear()


def _compile_waiting(errors: tuple[type[Exception], ...]) -> None:
    """Compile queued units, with target machines of this thread alone. `errors` are recorded in their unit; others end
    the thread."""
    try:
        machines = _machines.pop()
    except IndexError:
        machines = _TargetMachines()
    try:
        while _queue:
            try:
                unit = _queue.popleft()
            except IndexError:  # another thread was faster
                break
            try:
                unit.called, unit.code = _object_code(unit.text(), unit.pipeline, machines)
            except errors as error:
                unit.error = error
    finally:
        _machines.append(machines)


def _count(**increments: int) -> None:
    global _info
    _info = replace(_info, **{name: getattr(_info, name) + more for name, more in increments.items()})


# Compiling and loading.


def _target_machine(level: int) -> int:
    return binding.target_machine(level, *processor())


@functools.cache
def _compiler() -> tuple[int, str, str]:
    """A machine that compiles, its data layout and its triple."""
    machine = _target_machine(2)
    return machine, *binding.machine_layout(machine)


def optimized_text(text: str) -> str:
    """LLVM text after LLVM's passes, to see what became of it."""
    return _inspect(text, "loops", lambda compilation, _: compilation.text())


def assembly(kernel: Kernel, is_builtin: bool = False, extent: int = 0, work: int = 0) -> str:
    """The assembly of a kernel for this processor."""
    pipeline = _pipeline(kernel.body, is_builtin, extent, work)
    return _inspect(_text(kernel, pipeline), pipeline, Compilation.assembly)


def _optimize(owner: Owner, text: str, pipeline: _Pipeline, machine: int) -> Compilation:
    """Run LLVM's passes on a text. `loops` is LLVM's level 2, without the vectorizer of straight-line code, which costs
    time and changes nothing in kernels that are loops. `vectors`, `slp`, `inline` and `straight-line` only inline and
    combine instructions: their code is vectorized already, or there is nothing to gain from vectors, or some of LLVM's
    passes are quadratic in the length of a block. `calls` and `final` run none."""
    _, layout, triple = _compiler()
    compilation = Compilation(owner, text, layout, triple)
    if pipeline == "inline":
        compilation.inline(machine)
    elif pipeline in ("vectors", "slp", "straight-line"):
        compilation.inline(machine, straight=True)
    elif pipeline not in ("calls", "final"):
        compilation.optimize(machine)
    return compilation


def _inspect(text: str, pipeline: _Pipeline, look: Callable[[Compilation, int], str]) -> str:
    """Run `look` on a module that was optimized as kernels are, while no other thread compiles."""
    owner, machine = Owner(), _compiler()[0]
    with _lock:
        _finish_all()
        _set_fast_options(True)
        try:
            return look(_optimize(owner, text, pipeline, machine), machine)
        finally:
            owner.close()
            _set_fast_options(False)


def _set_fast_options(is_fast: bool) -> None:
    """Set LLVM's options, which are those of the whole process, for fast compilation, or set them back.

    Fast compilation leaves out a third of LLVM's work that makes no kernel faster: a second vector loop of narrower
    vectors (epilogue vectorization), loop strength reduction, and dependences between all pairs of hundreds of memory
    accesses, whose number is quadratic.

    The options are set back when no unit is left. As LLVM ends the process for an unknown option, they are set in known
    versions alone.
    """
    global _is_fast
    if is_fast is _is_fast:
        return
    _is_fast = None  # so it stays if an exception comes between
    options = _LLVM_OPTIONS if llvm.llvm_version_info[0] in _LLVM_VERSIONS else {}
    for option, values in options.items():
        binding.set_option(f"-{option}={values[is_fast]}")
    _is_fast = is_fast


def _object_code(text: str, pipeline: _Pipeline, machines: _TargetMachines) -> tuple[list[str], bytes]:
    """Compile text; returns the names of its external functions and the object code."""
    machine = machines[0 if pipeline == "calls" else 2]  # level 0 for code that only calls routines
    owner = Owner()
    try:
        compilation = _optimize(owner, text, pipeline, machine)
        return compilation.declarations(), compilation.object_code(machine)
    finally:
        owner.close()


def _require_symbols(called: Sequence[str]) -> None:
    """Check that all external functions are defined: LLVM ends the process when a symbol cannot be resolved."""
    missing = [name for name in called if not name.startswith("llvm.") and not symbol_address(name)]
    if missing:
        names = ", ".join(missing)
        raise UnsupportedKernel(f"Native code calls {names}, which this process does not have; load it first.")


@functools.cache
def _shared_engine() -> int:
    _load_functions()
    return _engine("")


def _engine(text: str) -> int:
    return binding.engine(text, _target_machine(2))


@functools.cache
def _load_functions() -> None:
    """Define the functions that LLVM's code generator calls: `fmod`, which is in a library of its own on Linux, and the
    conversions of half precision where the processor has no instructions for them."""
    if sys.platform.startswith("linux") and not symbol_address("fmod"):
        binding.load_library("libm.so.6")
    has_instructions = has_feature("f16c") or not _compiler()[2].startswith("x86")
    if not has_instructions and not all(map(symbol_address, half_builtins.CONVERSIONS)):
        engine = _engine(half_builtins.TEXT)
        binding.finalize(engine)
        for name in half_builtins.CONVERSIONS:
            define_symbol(name, binding.engine_function(engine, name))


def _load(unit: _Unit) -> None:
    """Load the object code of a unit into the process, and keep it on disk if it is new."""
    if unit.error is not None or unit.code is None or unit.addresses is not None:
        return
    _require_symbols(unit.called)
    if not unit.is_on_disk:
        cache.write(unit.key, packed(unit.code, unit.called))
    engine = _shared_engine()
    binding.add_object(engine, unit.code)
    addresses = {name: binding.engine_function(engine, _unique(name, unit.key)) for name in unit.names}
    unit.addresses = _addresses[unit.key] = addresses
    _define_symbols(unit)


def _define_symbols(unit: _Unit) -> None:
    """Define the symbols of a unit, if it is loaded."""
    if unit.addresses is not None:
        for name, symbol in unit.symbols.items():
            define_symbol(symbol, unit.addresses[name])


# Cache keys.


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join([*parts, _environment()]).encode()).hexdigest()


@functools.cache
def _environment() -> str:
    version = ".".join(str(part) for part in llvm.llvm_version_info)
    return "\0".join([cache.FORMAT.decode(), *processor(), llvmlite.__version__, version, sys.platform])


@functools.cache
def _emission_version() -> str:
    """A hash of the modules, and of the declarations of ops, that decide which code a kernel becomes."""
    digest = hashlib.sha256()
    modules = [__file__, *(str(module.__file__) for module in _EMITTERS)]
    mathematics = Path(str(elementary.__file__)).parent
    for path in [*map(Path, modules), *sorted(mathematics.glob("*.py"))]:
        digest.update(path.read_bytes())
    for name, op in sorted(ops.items()):
        if op.scalar:
            digest.update(f"{name} {op.scalar.name} {sorted(op.scalar.slow_path)}\n".encode())
    return digest.hexdigest()

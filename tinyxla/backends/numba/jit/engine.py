"""LLVM text to native code.

LLVM is called directly (`llvm_binding`): no type inference stands between a kernel and its machine code. All kernels go
into one MCJIT engine, which makes loading an object a matter of some thirty microseconds. Engines, and with them all
addresses handed out, live until the process ends. Object code is kept on disk (`tinyxla.cache`), under the SHA-256 of
what it depends on: the loop IR (up to names) or the LLVM text, the processor and its features, the versions of llvmlite
and LLVM, and the source of the modules that emit code.

A program is compiled kernel by kernel: `start_kernel` and `provide_llvm` only begin that, threads go on with it, and
the first address that is asked for waits until all that was begun is part of the process. An exception may interrupt
any step of that, as Ctrl-C does: what was begun then stays begun, and the next address that is asked for finishes it.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import llvmlite
import llvmlite.binding as llvm

from tinyxla import cache
from tinyxla.backends.numba.emit import (
    half_builtins,
    operations,
    printer,
    scalar,
    vector_variants,
    vectorize_integer,
)
from tinyxla.backends.numba.emit.operations import UnsupportedKernel
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.emit.vectorize_integer import kinds_of
from tinyxla.backends.numba.jit import binding
from tinyxla.backends.numba.jit.binding import Compilation, LLVMError, Owner, symbol_address
from tinyxla.backends.numba.jit.object_files import packed, unpacked
from tinyxla.errors import TinyxlaError
from tinyxla.loopir.ir import fingerprint, llvm_templates, loop_ir
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.llvm_templates import expand_macros
from tinyxla.loopir.ir.loop_ir import Call, Kernel, Load, Loop, Multiply, Statement
from tinyxla.loopir.passes import split_nan_check
from tinyxla.loopir.target import has_feature, has_masks, processor, vector_bytes
from tinyxla.runtime.threads import Task, get_num_threads
from tinyxla_kernels import elementary

_SWITCHES = {  # values of LLVM's own, for a compilation here, and for long straight-line code
    "enable-epilogue-vectorization": ("true", "false", "false"),
    "disable-lsr": ("false", "true", "true"),
    "dag-maps-huge-region": ("1000", "200", "200"),
    "pre-RA-sched": ("default", "default", "fast"),
}
_SWITCH_VERSIONS = range(14, 23)  # of LLVM, which knows them
_MANY = 16  # values that a loop carries
_STRAIGHT = 96  # values that a loop carries, of which registers hold few: it moves them from and to memory
_ERRORS = (UnsupportedKernel, LLVMError)  # of a module; others may come from outside, as that of a signal's handler
_Mode = Literal["own", "quick", "straight"]  # of LLVM's switches
_MODES: tuple[_Mode, ...] = ("own", "quick", "straight")
_Passes = Literal["driver", "routine", "in order", "straight", "loops", "all"]  # what is compiled, or how much is tried
_EMITTERS = (  # the modules that decide which code a kernel becomes
    fingerprint,
    llvm_templates,
    loop_ir,
    operations,
    printer,
    scalar,
    split_nan_check,
    vector_variants,
    vectorize_integer,
)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counts since the process began."""

    memory_hits: int = 0
    disk_hits: int = 0
    compilations: int = 0


class _Machines(dict[int, int]):
    """Those of a thread, by how much they try: LLVM takes milliseconds for the first code of each."""

    def __missing__(self, level: int) -> int:
        made = self[level] = _target_machine(level)
        return made


@dataclass(eq=False, slots=True)
class _Work:
    """A module on its way from text to the addresses of its functions `names`."""

    key: str
    names: Sequence[str]  # in the text they end in the key, as all modules share an engine
    text: Callable[[], str]
    passes: _Passes = "loops"
    symbol: str = ""  # by which other native code is to call the first function
    code: bytes | None = None
    called: Sequence[str] = ()  # what its code calls
    is_on_disk: bool = False
    addresses: dict[str, int] | None = None
    error: Exception | None = None


_lock = threading.RLock()
_lasting: dict[str, dict[str, int]] = {}
_addresses: dict[str, dict[str, int]] = {}
_begun: dict[str, _Work] = {}
_waiting: deque[_Work] = deque()  # those of them that nobody compiles yet
_tasks: list[Task] = []  # that compile
_machines: list[_Machines] = []  # that no thread uses now
_info = CacheInfo()
_mode: _Mode | None = "own"  # that LLVM's switches have; None if an exception came between
_is_held_for_fork = False


def _before_fork() -> None:
    """A fork waits for what compiles: LLVM has locks, which nobody opens in the child."""
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


def compile_kernel(kernel: Kernel, lasts: bool = False) -> int:
    """The address of `void (void **table, int64_t first, int64_t last)`; equal kernels share one. One that `lasts`
    belongs to the library rather than to a program: it is not forgotten."""
    return start_kernel(kernel, lasts)()


def start_kernel(kernel: Kernel, lasts: bool = False) -> Callable[[], int]:
    """The same in two steps: it is compiled while others are, and the function that this gives waits for all."""
    key = _key(kernel_fingerprint(kernel), _emission_version())
    kept = _lasting.get(key)
    if kept is not None:
        return lambda: kept["kernel"]
    text = functools.partial(kernel_text, kernel, _unique("kernel", key), lasts)
    work = _Work(key, ["kernel"], text, _passes(kernel.body, lasts))
    begun = _begin(work)

    def address() -> int:
        found = _finished(begun)
        if lasts:
            _lasting[key] = found
        return found["kernel"]

    return address


def _unique(name: str, key: str) -> str:
    return f"{name}_{key[:32]}"


def kernel_text(kernel: Kernel, name: str | None = None, lasts: bool = False, is_routine: bool = False) -> str:
    """A kernel as LLVM text for this processor."""
    in_vectors = _passes(kernel.body, lasts) == "in order"
    return print_llvm(kernel, name, has_masks(), vector_bytes(), in_vectors, is_routine)


def _carries_arrays(statements: Sequence[Statement]) -> bool:
    """Whether a loop carries arrays element by element, so that its code is long and straight."""
    loops = [x for x in statements if isinstance(x, Loop)]
    return any(len(x.carried) >= _MANY or _carries_arrays(x.body) for x in loops)


def _passes(statements: Sequence[Statement], lasts: bool) -> _Passes:
    if _is_driver(statements):
        return "driver"
    if lasts and _is_in_order(statements):
        return "in order"
    if not _carries_arrays(statements):
        return "loops"
    return "straight" if _is_straight(statements) else "all"


def _is_straight(statements: Sequence[Statement]) -> bool:
    """Whether all that a kernel does is to run straight-line code with very many carried values."""
    loops = [x for x in statements if isinstance(x, Loop)]
    inner = [y for x in loops for y in x.body if isinstance(y, Loop)]
    if not loops or not inner:
        return all(len(x.carried) >= _STRAIGHT for x in loops)
    return _is_straight(inner)


def _is_in_order(statements: Sequence[Statement]) -> bool:
    """Whether no loop can become one of vectors unless it is printed as one, so that there is little to improve in what
    was written with care."""
    loops = [x for x in statements if isinstance(x, Loop)]
    inner = [x for x in loops if not any(isinstance(y, (Loop, Call)) for y in x.body)]
    return all(x.sequential or kinds_of(x) for x in inner) and all(_is_in_order(x.body) for x in loops)


def _is_driver(statements: Sequence[Statement]) -> bool:
    """Whether a kernel does nothing but tell routines what to do."""
    waiting, calls = list(statements), False
    for x in waiting:
        if isinstance(x, (Load, Multiply)):
            return False
        calls = calls or isinstance(x, Call)
        waiting += x.body if isinstance(x, Loop) else ()
    return calls


def compile_llvm(text: str, names: Sequence[str], is_final: bool = False, is_seldom: bool = False) -> dict[str, int]:
    """The addresses of the functions `names` that the LLVM module `text`, in `llvm_text`'s shorthand, defines.

    The text is as good as it gets if it `is_final`; functions whose own instructions are `is_seldom` executed take
    little time to compile rather than to run. The code is kept on disk: the text must not contain addresses of this
    process. What it calls must be a function of the process (the C library's, say), else `UnsupportedKernel` names what
    is missing.
    """
    return dict(_finished(_begin(_module(text, names, is_final, is_seldom))))


def provide_llvm(symbol: str, text: str, name: str, is_final: bool = False, is_seldom: bool = False) -> None:
    """Let native code call, by a name, a function that LLVM text defines. It is compiled while others are."""
    _provide(_module(text, [name], is_final, is_seldom, symbol))


def provide_kernel(symbol: str, kernel: Kernel) -> None:
    """Let native code call a kernel that belongs to the library by a name, with the addresses of its arguments and that
    of its numbers. It is compiled while others are."""
    key = _key("routine", kernel_fingerprint(kernel), _emission_version())
    text = functools.partial(kernel_text, kernel, _unique("kernel", key), lasts=True, is_routine=True)
    _provide(_Work(key, ["kernel"], text, _passes(kernel.body, lasts=True), symbol))


def _provide(work: _Work) -> None:
    begun = _begin(work)
    if begun.addresses is not None:
        provide_function(work.symbol, begun.addresses[work.names[0]])


def _module(text: str, names: Sequence[str], is_final: bool, is_seldom: bool, symbol: str = "") -> _Work:
    passes: _Passes = "driver" if is_seldom else "routine" if is_final else "loops"
    key = _key(_emission_version(), text, *names, passes)

    def full() -> str:
        return re.sub(rf"@({'|'.join(names)})\b", lambda found: _unique(found[0], key), expand_macros(text))

    return _Work(key, names, full, passes, symbol)


def provide_function(name: str, address: int) -> None:
    """Let native code call what is at an address by a name."""
    binding.add_symbol(name, address)


def function_address(name: str) -> int:
    """What native code calls by a name; 0 if there is nothing."""
    with _lock:
        if any(work.symbol == name for work in _begun.values()):
            _finish()
    return symbol_address(name)


def cache_info() -> CacheInfo:
    """What was compiled, or found compiled, so far in this process."""
    return _info


def forget() -> None:
    """Forget what was compiled in this process; the cache on disk stays. Addresses handed out stay valid."""
    with _lock:
        _addresses.clear()


def _begin(work: _Work) -> _Work:
    """Let a module be compiled, unless it is compiled already, on disk, or under way."""
    with _lock:
        work.addresses = _addresses.get(work.key)
        begun = work if work.addresses is not None else _begun.get(work.key)
        if begun is not None:
            _count(memory_hits=1)
            return begun
        found = unpacked(cache.read(work.key) or b"")
        if found is not None:
            work.code, work.called = found
            work.is_on_disk = True
            _begun[work.key] = work
            _count(disk_hits=1)
            return work
        _compiler()
        _switch("quick")
        _begun[work.key] = work
        _count(compilations=1)
        if work.passes == "straight":  # which `_finish` compiles with other switches
            return work
        if work.passes in ("loops", "all"):  # what takes longest goes first, lest a thread waits in the end
            _waiting.appendleft(work)
        else:
            _waiting.append(work)
        _start_tasks(min(get_num_threads(), len(_waiting)) - 1)  # and one once a thread waits for all
        return work


def _finished(work: _Work) -> dict[str, int]:
    """The addresses of its functions."""
    with _lock:
        if work.addresses is None and work.error is None:
            _finish()
    if work.addresses is None:
        raise _error(work)
    return work.addresses


def _error(work: _Work) -> Exception:
    """The error of a module, which may be of a thread that knows no line of the user's."""
    if isinstance(work.error, TinyxlaError):
        work.error.add_user_line()
    return work.error or AssertionError(work.key)


def _finish() -> None:
    """Let threads compile what waits, and load all that was begun: first what other code calls."""
    _start_tasks(min(get_num_threads(), len(_waiting)))
    _join()
    straight = [work for work in _unfinished() if work.passes == "straight"]
    if straight:
        _switch("straight")
        _waiting.extend(straight)
        _start_tasks(min(get_num_threads(), len(_waiting)))
        _join()
    left = _unfinished()
    if left:  # there was no thread, or an exception came between
        _switch("quick")
        _waiting.extend(left)
        _compile_waiting(_ERRORS)
    _switch("own")
    works = sorted(_begun.values(), key=lambda work: not work.symbol)
    for work in works:
        try:
            _load(work)
        except _ERRORS as error:
            work.error = error
    _begun.clear()
    for work in works:
        if work.symbol and work.error:
            raise _error(work)


def _unfinished() -> list[_Work]:
    return [work for work in _begun.values() if work.code is None and work.error is None]


def _start_tasks(count: int) -> None:
    """Let so many threads compile what waits. The thread that waits for them may be interrupted, not these."""
    while len(_tasks) < count:
        _tasks.append(Task(functools.partial(_compile_waiting, (Exception,))))
        _tasks[-1].start()


def _join() -> None:
    for task in tuple(_tasks):
        task.wait()
    _tasks.clear()


def _compile_waiting(errors: tuple[type[Exception], ...]) -> None:
    """What each thread that compiles does, with a machine of its own: these errors are a module's; others end it."""
    try:
        machines = _machines.pop()
    except IndexError:
        machines = _Machines()
    try:
        while _waiting:
            try:
                work = _waiting.popleft()
            except IndexError:  # another thread was faster
                break
            try:
                work.called, work.code = _object_code(work.text(), work.passes, machines)
            except errors as error:
                work.error = error
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


def optimised(text: str) -> str:
    """LLVM text after LLVM's passes, to see what became of it."""
    return _inspected(text, "loops", lambda compilation, _: compilation.text())


def assembly(kernel: Kernel, lasts: bool = False) -> str:
    """What a kernel becomes on this processor."""
    return _inspected(kernel_text(kernel, lasts=lasts), _passes(kernel.body, lasts), Compilation.assembly)


def _optimised(owner: Owner, text: str, passes: _Passes, machine: int) -> Compilation:
    """Level 2, with the vectoriser of straight-line code only where there is much of it: level 3, and that vectoriser,
    cost time and change nothing in most kernels, which are loops. What consists of instructions on vectors, or calls
    such routines, needs nothing, and what goes through elements one by one little, as does straight-line code whose
    common subexpressions were found before, and which is longer than what is quadratic in some passes."""
    _, layout, triple = _compiler()
    compilation = Compilation(owner, text, layout, triple)
    if passes == "in order":
        compilation.inline(machine)
    elif passes == "straight":
        compilation.inline(machine, straight=True)
    elif passes not in ("driver", "routine"):
        compilation.optimise(machine, slp_vectorization=passes == "all")
    return compilation


def _inspected(text: str, passes: _Passes, look: Callable[[Compilation, int], str]) -> str:
    """What is compiled as kernels are compiled, while no other thread compiles."""
    owner, machine = Owner(), _compiler()[0]
    with _lock:
        _finish()
        _switch("straight" if passes == "straight" else "quick")
        try:
            return look(_optimised(owner, text, passes, machine), machine)
        finally:
            owner.close()
            _switch("own")


def _switch(mode: _Mode) -> None:
    """Set LLVM's switches: leave out work that takes LLVM a third of its time and makes no kernel faster, or not.

    `quick` is one vector loop for each loop, and elements one by one after it, instead of a second one of narrower
    vectors; indices as they are, instead of addresses that are carried from one iteration to the next; and in blocks of
    hundreds of loads and stores not all pairs of these as dependences, whose number is quadratic. `straight` is for
    code of one block with thousands of instructions that do not depend on each other: there the list scheduler of
    instruction selection, which looks at all of them for each, takes nearly all of the time; the machine scheduler
    comes after it anyway. (LLVM's `linearize` in its place puts other instructions between a comparison and the use of
    its flags.)

    LLVM's switches are those of the whole process, so they are set back when nothing is left to compile; and as LLVM
    ends the process when it does not know a switch, only known versions meet them.
    """
    global _mode
    if mode == _mode:
        return
    before, _mode = _mode, None  # so it stays if an exception comes between
    switches = _SWITCHES if llvm.llvm_version_info[0] in _SWITCH_VERSIONS else {}
    for switch, values in switches.items():
        value = values[_MODES.index(mode)]
        if before is None or value != values[_MODES.index(before)]:
            binding.set_option(f"-{switch}={value}")
    _mode = mode


def _object_code(text: str, passes: _Passes, machines: _Machines) -> tuple[list[str], bytes]:
    """The names of the functions that the code calls, and the code."""
    machine = machines[0 if passes == "driver" else 2]  # a driver's registers are not worth the time
    owner = Owner()
    try:
        compilation = _optimised(owner, text, passes, machine)
        return compilation.declarations(), compilation.object_code(machine)
    finally:
        owner.close()


def _require_symbols(called: Sequence[str]) -> None:
    """LLVM ends the process when a symbol cannot be resolved, so look first."""
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
    """What LLVM turns to: for remainders `fmod`, which is in a library of its own on Linux; and for half precision, on
    processors without instructions for it, conversions that the process may not have."""
    if sys.platform.startswith("linux") and not symbol_address("fmod"):
        binding.load_library("libm.so.6")
    has_instructions = has_feature("f16c") or not _compiler()[2].startswith("x86")
    if not has_instructions and not all(map(symbol_address, half_builtins.CONVERSIONS)):
        engine = _engine(half_builtins.TEXT)
        binding.finalize(engine)
        for name in half_builtins.CONVERSIONS:
            provide_function(name, binding.engine_function(engine, name))


def _load(work: _Work) -> None:
    """Make compiled code part of the process, and keep it on disk if it is new."""
    if work.error is not None or work.code is None or work.addresses is not None:
        return
    _require_symbols(work.called)
    if not work.is_on_disk:
        cache.write(work.key, packed(work.code, work.called))
    engine = _shared_engine()
    binding.add_object(engine, work.code)
    addresses = {name: binding.engine_function(engine, _unique(name, work.key)) for name in work.names}
    if work.symbol:
        provide_function(work.symbol, addresses[work.names[0]])
    work.addresses = _addresses[work.key] = addresses


# What code depends on.


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join([*parts, _environment()]).encode()).hexdigest()


@functools.cache
def _environment() -> str:
    version = ".".join(str(part) for part in llvm.llvm_version_info)
    return "\0".join([cache.FORMAT.decode(), *processor(), llvmlite.__version__, version, sys.platform])


@functools.cache
def _emission_version() -> str:
    """A hash of the modules that decide which code a kernel becomes."""
    digest = hashlib.sha256()
    modules = [__file__, *(str(module.__file__) for module in _EMITTERS)]
    mathematics = Path(str(elementary.__file__)).parent
    for path in [*map(Path, modules), *sorted(mathematics.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()

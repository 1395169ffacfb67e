"""LLVM text to native code.

llvmlite's binding is used as it is: no type inference stands between a kernel and its machine code. All kernels go
into one MCJIT engine, which makes loading an object a matter of some thirty microseconds. Engines, and with them all
addresses handed out, live until the process ends. Object code is kept on disk (`tinyxla.cache`), under the SHA-256 of
what it depends on: the loop IR (up to names) or the LLVM text, the processor and its features, the versions of llvmlite
and LLVM, and the source of the modules that emit code.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tinyxla import cache
from tinyxla.backends.numba.canonical import canonical
from tinyxla.backends.numba.llvm_operations import UnsupportedKernel
from tinyxla.backends.numba.llvm_printer import print_llvm
from tinyxla.backends.numba.loops import Kernel, Loop, Statement
from tinyxla_kernels import elementary

_SWITCHES = {"enable-epilogue-vectorization": ("false", "true"), "disable-lsr": ("true", "false")}
_SWITCH_VERSIONS = range(14, 23)  # of LLVM, which knows them
_MANY = 16  # values that a loop carries
_EMITTERS = tuple(
    f"{name}.py" for name in "loops canonical llvm_operations llvm_printer llvm_scalar native vector_functions".split()
)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counts since the process began."""

    memory_hits: int = 0
    disk_hits: int = 0
    compilations: int = 0


_lock = threading.RLock()


_lasting: dict[str, dict[str, int]] = {}


def _renew_lock() -> None:
    """In the child of a fork, whose only thread is another to it than the one that took the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a fork waits for what compiles: LLVM has locks, which nobody opens in the child
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_renew_lock
    )
_addresses: dict[str, dict[str, int]] = {}
_info = CacheInfo()


def compile_kernel(kernel: Kernel, lasts: bool = False) -> int:
    """The address of `void (void **table, int64_t first, int64_t last)`; equal kernels share one. One that `lasts`
    belongs to the library rather than to a program: it is not forgotten."""
    key = _key(canonical(kernel), _emission_version())
    name = f"kernel_{key[:32]}"

    def text() -> str:
        return kernel_text(kernel, name)

    found = _lasting.get(key) or _compiled(key, text, [name], _shared_engine, _carries_arrays(kernel.body))
    if lasts:
        _lasting[key] = found
    return found[name]


def kernel_text(kernel: Kernel, name: str | None = None) -> str:
    """A kernel as LLVM text for this processor."""
    return print_llvm(kernel, name, masked_tails=_has_masks(), vector_bytes=vector_bytes())


def _carries_arrays(statements: Sequence[Statement]) -> bool:
    """Whether a loop carries arrays element by element, so that its code is long and straight."""
    loops = [x for x in statements if isinstance(x, Loop)]
    return any(len(x.carried) >= _MANY or _carries_arrays(x.body) for x in loops)


def compile_llvm(text: str, names: Sequence[str]) -> dict[str, int]:
    """The addresses of the functions `names` that the LLVM module `text` defines.

    Its code is kept on disk: the text must not contain addresses of this process. What it calls must be a function of
    the process (the C library's, say), else `UnsupportedKernel` names what is missing.
    """
    return dict(_compiled(_key(text, *names), lambda: text, names, _new_engine))


def provide_function(name: str, address: int) -> None:
    """Let native code call what is at an address by a name."""
    llvm.add_symbol(name, address)


def cache_info() -> CacheInfo:
    """What was compiled, or found compiled, so far in this process."""
    return _info


def forget() -> None:
    """Forget what was compiled in this process; the cache on disk stays. Addresses handed out stay valid."""
    with _lock:
        _addresses.clear()


def _compiled(
    key: str,
    text: Callable[[], str],
    names: Sequence[str],
    engine: Callable[[], llvm.ExecutionEngine],
    is_straight: bool = False,
) -> dict[str, int]:
    with _lock:
        found = _addresses.get(key)
        if found is not None:
            _count(memory_hits=1)
            return found
        code = cache.read(key)
        if code is None:
            code = _object_code(text(), is_straight)
            _count(compilations=1)
            cache.write(key, code)
        else:
            _count(disk_hits=1)
        found = _addresses[key] = _load(engine(), code, names)
        return found


def _count(**increments: int) -> None:
    global _info
    _info = replace(_info, **{name: getattr(_info, name) + more for name, more in increments.items()})


# Compiling and loading.


@functools.cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _has_masks() -> bool:
    return "+avx512vl" in _processor()[1]


def vector_bytes() -> int:
    features = _processor()[1]
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


def has_feature(name: str) -> bool:
    """Whether the processor has instructions, by LLVM's name for them."""
    return f"+{name}," in f"{_processor()[1]},"


def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


@functools.cache
def _compiler() -> tuple[llvm.TargetMachine, str, str]:
    """The machine that compiles, its data layout and its triple."""
    machine = _target_machine()
    return machine, str(machine.target_data), machine.triple


def optimised(text: str) -> str:
    """LLVM text after LLVM's passes, to see what became of it."""
    with _lock:
        return str(_optimised(text))


def assembly(text: str) -> str:
    """What LLVM text becomes for this processor."""
    with _lock:
        module = _optimised(text)
        with _quickly():
            return _compiler()[0].emit_assembly(module)


def _optimised(text: str, is_straight: bool = False) -> llvm.ModuleRef:
    """Level 2, with the vectoriser of straight-line code only where there is much of it: level 3, and that vectoriser,
    cost time and change nothing in most kernels, which are loops."""
    machine, layout, triple = _compiler()
    module = llvm.parse_assembly(text)
    module.data_layout = layout
    module.triple = triple
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.loop_interleaving = True
    options.loop_unrolling = True
    options.slp_vectorization = is_straight
    builder = llvm.create_pass_builder(machine, options)
    with _quickly():
        builder.getModulePassManager().run(module, builder)
    return module


@contextmanager
def _quickly() -> Generator[None]:
    """Without work that takes LLVM a third of its time and makes no kernel faster: one vector loop for each loop, and
    elements one by one after it, instead of a second one of narrower vectors; and indices as they are, instead of
    addresses that are carried from one iteration to the next.

    LLVM's switches are those of the whole process, so they are set back at once; and as LLVM ends the process when it
    does not know a switch, only known versions meet them.
    """
    switches = _SWITCHES if llvm.llvm_version_info[0] in _SWITCH_VERSIONS else {}
    for switch, (quick, _) in switches.items():
        llvm.set_option("tinyxla", f"-{switch}={quick}")
    try:
        yield
    finally:
        for switch, (_, usual) in switches.items():
            llvm.set_option("tinyxla", f"-{switch}={usual}")


def _object_code(text: str, is_straight: bool) -> bytes:
    module = _optimised(text, is_straight)
    _require_symbols(module)
    with _quickly():
        return _compiler()[0].emit_object(module)


def _require_symbols(module: llvm.ModuleRef) -> None:
    """LLVM ends the process when a symbol cannot be resolved, so look first."""
    called = [function.name for function in module.functions if function.is_declaration]
    missing = [name for name in called if not name.startswith("llvm.") and not llvm.address_of_symbol(name)]
    if missing:
        names = ", ".join(missing)
        raise UnsupportedKernel(f"Native code calls {names}, which this process does not have; load it first.")


def _new_engine() -> llvm.ExecutionEngine:
    """An engine owns its target machine: deleting it would delete that. Hence engines are kept for ever."""
    _load_math_library()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))  # never freed: at exit a thread may still be inside its code
    return engine


_shared_engine = functools.cache(_new_engine)
_kept: list[Any] = []


@functools.cache
def _load_math_library() -> None:
    """`fmod`, to which LLVM turns for remainders, is in a library of its own on Linux."""
    if sys.platform.startswith("linux") and not llvm.address_of_symbol("fmod"):
        llvm.load_library_permanently("libm.so.6")


def _load(engine: llvm.ExecutionEngine, code: bytes, names: Sequence[str]) -> dict[str, int]:
    object_file = llvm.ObjectFileRef.from_data(code)
    engine.add_object_file(object_file)
    engine.finalize_object()
    _kept.append(object_file)
    return {name: engine.get_function_address(name) for name in names}


# What code depends on.


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join([*parts, _environment()]).encode()).hexdigest()


@functools.cache
def _environment() -> str:
    version = ".".join(str(part) for part in llvm.llvm_version_info)
    return "\0".join([cache.FORMAT.decode(), *_processor(), llvmlite.__version__, version, sys.platform])


@functools.cache
def _emission_version() -> str:
    """A hash of the modules that decide which code a kernel becomes."""
    digest = hashlib.sha256()
    here, mathematics = Path(__file__).parent, Path(str(elementary.__file__)).parent
    for path in [*(here / name for name in _EMITTERS), *sorted(mathematics.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""LLVM through llvmlite's C interface, one foreign call at a time.

llvmlite's own classes dispose of a native object when the garbage collector finalizes its wrapper, in any order for
those of a reference cycle (a module after its context: a segmentation fault), and lock and unlock in Python code, in
which an exception that comes from outside (of a signal handler, say) leaves the lock acquired. Here a handle is an
integer, and no finalizer exists. `Owner` registers a handle within the foreign call that creates it, and disposes of
all its handles in one call: Python raises exceptions from outside between bytecodes, so neither is left half done.

Modules of different contexts and machines of different threads have nothing in common, hence no lock.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import platform
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat, starmap
from typing import Any

from llvmlite.binding import ffi

_OBJECT, _ASSEMBLY = 1, 0  # what `TargetMachineEmitToMemory` takes
# Functions that take long, which other threads need not wait for. A thread that has released the interpreter's lock
# waits up to its switch interval to get it back, which is longer than all other functions take.
_RELEASING = ("ParseAssembly", "RunNewModulePassManager", "TargetMachineEmitToMemory")


@functools.cache
def _function(name: str) -> Any:
    """A function of llvmlite's library, with integers for handles."""
    declared = getattr(ffi.lib, f"LLVMPY_{name}")
    library = ctypes.CDLL if name in _RELEASING else ctypes.PyDLL
    function = getattr(library(ffi.lib._name), f"LLVMPY_{name}")  # pyright: ignore[reportPrivateUsage]
    function.argtypes = [_with_integers(x) for x in declared.argtypes or ()]
    function.restype = _with_integers(declared.restype)
    return function


def _with_integers(kind: Any) -> Any:
    is_pointer = isinstance(kind, type) and issubclass(kind, ctypes._Pointer)  # pyright: ignore[reportPrivateUsage]
    return ctypes.c_void_p if is_pointer else kind


class LLVMError(RuntimeError):
    """What LLVM says of a text or a machine that it cannot use."""


class Owner:
    """Native objects that end together, the last created first. `close` may be called again."""

    def __init__(self) -> None:
        self._owned: list[tuple[Callable[[int], Any], int]] = []
        disposal = starmap(operator.call, self._owned)  # walks over what is there when it is closed
        self.close = functools.partial(deque[Any], disposal, 0)

    def create(self, name: str, arguments: Sequence[Any], disposer: str) -> int:
        """The handle that a function gives; 0 for a null pointer."""
        create, dispose = _function(name), _function(disposer)
        self._owned[:0] = zip(repeat(dispose), starmap(create, [arguments]))
        return self._owned[0][1] or 0


def _message(error: ctypes.c_char_p) -> str:
    """A string that LLVM allocated."""
    text = (error.value or b"").decode()
    _function("DisposeString")(error)
    return text


def _string(name: str, *arguments: Any) -> str:
    out = ctypes.c_char_p()
    _function(name)(*arguments, ctypes.byref(out))
    return _message(out)


# Code.


class Compilation:
    """A module in a context of its own, which owns it: disposing of a context deletes its modules."""

    def __init__(self, owner: Owner, text: str, layout: str, triple: str) -> None:
        self._owner = owner
        context = owner.create("ContextCreate", (), "ContextDispose")
        error = ctypes.c_char_p()
        self._module = _function("ParseAssembly")(context, text.encode(), ctypes.byref(error))
        if not self._module:
            raise LLVMError(f"LLVM IR parsing error\n{_message(error)}")
        _function("SetDataLayout")(self._module, layout.encode())
        _function("SetTarget")(self._module, triple.encode())

    def optimize(self, machine: int) -> None:
        """LLVM's pipeline of level 2."""
        options = self._owner.create("CreatePipelineTuningOptions", (), "DisposePipelineTuningOptions")
        for option in ("LoopVectorization", "LoopInterleaving", "LoopUnrolling"):
            _function(f"PTOSet{option}")(options, True)
        _function("PTOSetSLPVectorization")(options, False)
        builder = self._owner.create("CreatePassBuilder", (machine, options), "DisposePassBuilder")
        levels = (2, 0)[: len(_function("buildPerModuleDefaultPipeline").argtypes) - 1]  # of speed, and of size
        manager = self._owner.create("buildPerModuleDefaultPipeline", (builder, *levels), "DisposeNewModulePassManger")
        _function("RunNewModulePassManager")(manager, self._module, builder)

    def inline(self, machine: int, straight: bool = False) -> None:
        """What is always inlined, and instructions combined; of `straight` code, scratch in registers as well."""
        options = self._owner.create("CreatePipelineTuningOptions", (), "DisposePipelineTuningOptions")
        builder = self._owner.create("CreatePassBuilder", (machine, options), "DisposePassBuilder")
        manager = self._owner.create("CreateNewModulePassManager", (), "DisposeNewModulePassManger")
        _function("module_AddAlwaysInlinerPass")(manager)
        if straight:
            _function("module_AddSROAPass")(manager)
        _function("module_AddInstCombinePass")(manager)
        if straight:
            _function("module_AddSimplifyCFGPass")(manager)
        _function("RunNewModulePassManager")(manager, self._module, builder)

    def text(self) -> str:
        return _string("PrintModuleToString", self._module)

    def declarations(self) -> list[str]:
        """The names of the functions that it calls and does not define."""
        iterator = self._owner.create("ModuleFunctionsIter", (self._module,), "DisposeFunctionsIter")
        names: list[str] = []
        while function := _function("FunctionsIterNext")(iterator):
            if _function("IsDeclaration")(function):
                names.append(_function("GetValueName")(function).decode())
        return names

    def object_code(self, machine: int) -> bytes:
        return self._emitted(machine, _OBJECT)

    def assembly(self, machine: int) -> str:
        return self._emitted(machine, _ASSEMBLY).decode()

    def _emitted(self, machine: int, kind: int) -> bytes:
        error = ctypes.c_char_p()
        arguments = (machine, self._module, kind, ctypes.byref(error))
        buffer = self._owner.create("TargetMachineEmitToMemory", arguments, "DisposeMemoryBuffer")
        if not buffer:
            raise LLVMError(_message(error))
        return ctypes.string_at(_function("GetBufferStart")(buffer), _function("GetBufferSize")(buffer))


# What lives until the process ends.


def target_machine(level: int, cpu: str, features: str) -> int:
    """A machine for code of this process that tries so much. It is kept for ever."""
    _function("InitializeNativeTarget")()
    _function("InitializeNativeAsmPrinter")()
    triple = _string("GetDefaultTargetTriple").encode()
    error = ctypes.c_char_p()
    target = _function("GetTargetFromTriple")(triple, ctypes.byref(error))
    if not target:
        raise LLVMError(_message(error))
    triple += b"-elf" if platform.system() == "Windows" else b""  # for MCJIT, which takes no other objects
    texts = (triple, cpu.encode(), features.encode())
    machine = _function("CreateTargetMachine")(target, *texts, level, b"default", b"jitdefault", 0, 1, b"")
    if not machine:
        raise LLVMError(f"LLVM has no machine for {triple.decode()} with the processor {cpu}.")
    return machine


def machine_layout(machine: int) -> tuple[str, str]:
    """A machine's data layout and its triple."""
    owner = Owner()
    try:
        data = owner.create("CreateTargetMachineData", (machine,), "DisposeTargetData")
        return _string("CopyStringRepOfTargetData", data), _string("GetTargetMachineTriple", machine)
    finally:
        owner.close()


def engine(text: str, machine: int) -> int:
    """An MCJIT engine, to which its module and its machine belong. It is kept for ever: at exit a thread may still be
    inside its code."""
    error = ctypes.c_char_p()
    module = _function("ParseAssembly")(_function("ContextCreate")(), text.encode(), ctypes.byref(error))
    has_own_memory = platform.machine().lower() in ("arm64", "aarch64")  # LLVM's may be too far apart for its branches
    made = module and _function("CreateMCJITCompiler")(module, machine, has_own_memory, ctypes.byref(error))
    if not made:
        raise LLVMError(_message(error))
    return made


def finalize(engine: int) -> None:
    """Make all that was added to an engine ready to run."""
    _function("FinalizeObject")(engine)


def add_object(engine: int, code: bytes) -> None:
    """Make object code part of the process. One that was added before may be added again; the last one counts."""
    _function("MCJITAddObjectFile")(engine, _function("CreateObjectFile")(code, len(code)))
    finalize(engine)


def engine_function(engine: int, name: str) -> int:
    """The address of a function, which must be there: otherwise LLVM ends the process."""
    return _function("GetFunctionAddress")(engine, name.encode())


# What is one for the process.


def add_symbol(name: str, address: int) -> None:
    """Let native code call what is at an address by a name."""
    _function("AddSymbol")(name.encode(), address)


def symbol_address(name: str) -> int:
    """The address that native code finds under a name; 0 if there is nothing."""
    return _function("SearchAddressOfSymbol")(name.encode()) or 0


def load_library(path: str) -> None:
    """Let native code call what a library holds."""
    error = ctypes.c_char_p()
    if _function("LoadLibraryPermanently")(path.encode(), ctypes.byref(error)):
        raise LLVMError(_message(error))


def set_option(option: str) -> None:
    """Set one of LLVM's command-line options."""
    _function("SetCommandLine")(b"tinyxla", option.encode())

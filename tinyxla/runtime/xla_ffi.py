"""Host of XLA's typed foreign function interface (FFI): handlers in C++ are called with buffers and attributes.

A handler is a function `XLA_FFI_Error *handler(XLA_FFI_CallFrame *frame)`. Its frame has the arrays, the attributes
sorted by name, and the functions of this host that the handler may call. A target is one handler, or one for each
stage: `instantiate` runs once for a target and its attributes and may make a state, `prepare`, `initialize` and
`execute` run in each call.

Source: the structures and functions are those of version 0.3 of the interface (`xla/ffi/api/c_api.h`); "XLA Custom
Calls" of the XLA documents.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, KernelError
from tinyxla.runtime.threads import get_num_threads
from tinyxla.shapes import element_type

Array = np.ndarray[Any, Any]
STAGES = ("instantiate", "prepare", "initialize", "execute")
_VERSION = (0, 3)
_CODES = """OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
    UNAUTHENTICATED""".split()
_TYPES = {
    "pred": 1, "s1": 30, "s2": 26, "s4": 21, "s8": 2, "s16": 3, "s32": 4, "s64": 5, "u1": 31, "u2": 27, "u4": 22,
    "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "f32": 11, "f64": 12, "bf16": 16, "c64": 15, "c128": 18,
    "f8e5m2": 19, "f8e3m4": 29, "f8e4m3": 28, "f8e4m3fn": 20, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24,
    "f8e4m3fnuz": 25, "f4e2m1fn": 32, "f8e8m0fnu": 33,
}  # fmt: skip


# --- structures -------------------------------------------------------------------------------------------------------


class _ByteSpan(Structure):
    _fields_ = (("ptr", c_void_p), ("len", c_size_t))


class _Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", c_void_p))


class _Array(Structure):
    _fields_ = (("dtype", c_int), ("size", c_size_t), ("data", c_void_p))


_HEAD = (("struct_size", c_size_t), ("extension_start", c_void_p))


class _Buffer(Structure):
    _fields_ = (*_HEAD, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))


class _Values(Structure):
    """Arguments or results."""

    _fields_ = (*_HEAD, ("size", c_int64), ("types", POINTER(c_int)), ("values", POINTER(c_void_p)))


class _Attributes(Structure):
    _fields_ = (
        *_HEAD,
        ("size", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
    )


class _CallFrame(Structure):
    _fields_ = (
        *_HEAD,
        ("api", c_void_p),
        ("ctx", c_void_p),
        ("stage", c_int),
        ("args", _Values),
        ("rets", _Values),
        ("attrs", _Attributes),
        ("future", c_void_p),
    )


class _Version(Structure):
    _fields_ = (*_HEAD, ("major", c_int), ("minor", c_int))


_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_FUNCTIONS = """error_create error_get_message error_destroy handler_register stream_get type_register
    execution_context_get state_set state_get device_memory_allocate device_memory_free thread_pool_schedule
    thread_pool_num_threads future_create future_set_available future_set_error run_id_get
    device_ordinal_get""".split()  # in the order of the table


class _Api(Structure):
    _fields_ = (
        *_HEAD,
        ("version", _Version),
        ("internal", c_void_p),
        *((name, _Function) for name in _FUNCTIONS),
    )


def _arguments(**fields: Any) -> type[Structure]:
    """The arguments of a function of the host."""
    return type("Arguments", (Structure,), {"_fields_": (*_HEAD, *fields.items())})


_ARGUMENTS = {
    "error_create": _arguments(message=c_char_p, code=c_int),
    "error_get_message": _arguments(error=c_void_p, message=c_char_p),
    "error_destroy": _arguments(error=c_void_p),
    "type_register": _arguments(name=_ByteSpan, type_id=POINTER(c_int64), type_info=c_void_p),
    "execution_context_get": _arguments(ctx=c_void_p, type_id=POINTER(c_int64), data=c_void_p),
    "state_set": _arguments(ctx=c_void_p, stage=c_int, type_id=POINTER(c_int64), state=c_void_p),
    "state_get": _arguments(ctx=c_void_p, stage=c_int, type_id=POINTER(c_int64), state=c_void_p),
    "device_memory_allocate": _arguments(ctx=c_void_p, size=c_size_t, alignment=c_size_t, data=c_void_p),
    "device_memory_free": _arguments(ctx=c_void_p, size=c_size_t, data=c_void_p),
    "thread_pool_schedule": _arguments(ctx=c_void_p, task=c_void_p, data=c_void_p),
    "thread_pool_num_threads": _arguments(ctx=c_void_p, count=POINTER(c_int64)),
    "future_create": _arguments(future=c_void_p),
    "future_set_available": _arguments(future=c_void_p),
    "future_set_error": _arguments(future=c_void_p, error=c_void_p),
    "run_id_get": _arguments(ctx=c_void_p, run_id=c_int64),
    "device_ordinal_get": _arguments(ctx=c_void_p, ordinal=c_int32),
}


# --- functions of the host that handlers call -------------------------------------------------------------------------


class _Failure(NamedTuple):
    """An error that a handler made."""

    message: bytes
    code: int


class _Future:
    """What a handler that goes on after its return gives: an event, and an error."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.failure: _Failure | None = None


class _Context:
    """A call: the states of the target by stage and type, and the memory that the handler asked for."""

    def __init__(self, states: dict[tuple[int, int], int], run: int) -> None:
        self.states, self.run, self.memory = states, run, dict[int, Any]()


class _Host:
    """The functions that handlers call, and what they name by numbers."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}  # errors, futures and contexts
        self.types: dict[bytes, int] = {}
        self._numbers = itertools.count(1)
        self._pool: ThreadPoolExecutor | None = None
        self.api = _Api(struct_size=ctypes.sizeof(_Api))
        self.api.version = _Version(ctypes.sizeof(_Version), None, *_VERSION)
        for name in _FUNCTIONS:
            setattr(self.api, name, _Function(functools.partial(self._call, name)))

    def add(self, x: Any) -> int:
        """A number that stands for an object, as a pointer."""
        number = next(self._numbers)
        self.objects[number] = x
        return number

    def _call(self, name: str, address: int) -> int | None:
        """A call of a function by a handler: an error, or nothing."""
        function, kind = getattr(self, f"_{name}", None), _ARGUMENTS.get(name)
        try:
            if function is None or kind is None:
                return self.add(_Failure(f"{name} is not there on a CPU.".encode(), _CODES.index("UNIMPLEMENTED")))
            found: _Failure | int | None = function(kind.from_address(address))
            return self.add(found) if isinstance(found, _Failure) else found
        except Exception as error:  # which cannot pass through a handler
            return self.add(_Failure(f"{name}: {error}".encode(), _CODES.index("INTERNAL")))

    def _error_create(self, args: Any) -> int:
        return self.add(_Failure(args.message or b"", args.code))

    def _error_get_message(self, args: Any) -> None:
        args.message = self.objects[args.error].message

    def _error_destroy(self, args: Any) -> None:
        self.objects.pop(args.error, None)

    def _type_register(self, args: Any) -> None:
        name = ctypes.string_at(args.name.ptr, args.name.len)
        args.type_id[0] = self.type_number(name, args.type_id[0])

    def type_number(self, name: bytes, given: int = 0) -> int:
        """The number of a type, which is the same for a name."""
        return self.types.setdefault(name, given or len(self.types) + 1)

    def _execution_context_get(self, args: Any) -> _Failure:
        return _Failure(b"there is no execution context with data of that type", _CODES.index("NOT_FOUND"))

    def _state_set(self, args: Any) -> None:
        self.objects[args.ctx].states[args.stage, args.type_id[0]] = args.state

    def _state_get(self, args: Any) -> _Failure | None:
        found = self.objects[args.ctx].states.get((args.stage, args.type_id[0]))
        if found is None:
            return _Failure(b"the handler has no state of that type", _CODES.index("NOT_FOUND"))
        args.state = found
        return None

    def _device_memory_allocate(self, args: Any) -> None:
        alignment = max(1, args.alignment)
        memory = ctypes.create_string_buffer(args.size + alignment)
        address = -(-ctypes.addressof(memory) // alignment) * alignment
        self.objects[args.ctx].memory[address] = memory
        args.data = address

    def _device_memory_free(self, args: Any) -> None:
        self.objects[args.ctx].memory.pop(args.data, None)

    def _thread_pool_schedule(self, args: Any) -> None:
        task = ctypes.CFUNCTYPE(None, c_void_p)(args.task)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(get_num_threads(), "tinyxla.ffi")
        self._pool.submit(task, args.data)

    def _thread_pool_num_threads(self, args: Any) -> None:
        args.count[0] = get_num_threads()

    def _future_create(self, args: Any) -> None:
        args.future = self.add(_Future())

    def _future_set_available(self, args: Any) -> None:
        self.objects[args.future].event.set()

    def _future_set_error(self, args: Any) -> None:
        future = self.objects[args.future]
        future.failure = self.objects.pop(args.error)
        future.event.set()

    def _run_id_get(self, args: Any) -> None:
        args.run_id = self.objects[args.ctx].run

    def _device_ordinal_get(self, args: Any) -> None:
        args.ordinal = 0


@functools.cache
def _host() -> _Host:
    return _Host()


# --- frames -----------------------------------------------------------------------------------------------------------


class _Encoded:
    """Attributes as a structure, with the memory that it points to."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._kept: list[Any] = []
        self.structure = self._dictionary(attributes)

    def _keep(self, x: Any) -> int:
        self._kept.append(x)
        return x.ctypes.data if isinstance(x, np.ndarray) else ctypes.addressof(x)

    def _span(self, text: str) -> _ByteSpan:
        data = text.encode()
        return _ByteSpan(self._keep(ctypes.create_string_buffer(data, len(data) + 1)), len(data))

    def _dictionary(self, attributes: Mapping[str, Any]) -> _Attributes:
        names, encoded = sorted(attributes), [self._attribute(attributes[name]) for name in sorted(attributes)]
        count = len(names)
        types = (c_int * count)(*(kind for kind, _ in encoded))
        spans = (c_void_p * count)(*(self._keep(self._span(name)) for name in names))
        values = (c_void_p * count)(*(self._keep(value) for _, value in encoded))
        self._kept += [types, spans, values]
        return _Attributes(
            ctypes.sizeof(_Attributes),
            None,
            count,
            ctypes.cast(types, POINTER(c_int)),
            ctypes.cast(spans, POINTER(c_void_p)),
            ctypes.cast(values, POINTER(c_void_p)),
        )

    def _attribute(self, x: Any) -> tuple[int, Structure]:
        """The kind of an attribute and its structure."""
        if isinstance(x, str):
            return 4, self._span(x)
        if isinstance(x, Mapping):
            return 2, self._dictionary(x)
        value = np.ascontiguousarray(x)
        code = _TYPES[element_type(value.dtype).name]
        if np.ndim(x):
            return 1, _Array(code, value.size, self._keep(value))
        return 3, _Scalar(code, self._keep(value))


def _buffers(arrays: Sequence[Array]) -> tuple[_Values, list[Any]]:
    """Arguments or results as a structure, and the memory that it points to."""
    count = len(arrays)
    kinds, pointers, kept = (c_int * count)(*[1] * count), (c_void_p * count)(), list[Any]()
    for k, x in enumerate(arrays):
        sizes = (c_int64 * x.ndim)(*x.shape)
        code = _TYPES[element_type(x.dtype).name]
        buffer = _Buffer(ctypes.sizeof(_Buffer), None, code, x.ctypes.data, x.ndim, sizes)
        pointers[k] = ctypes.addressof(buffer)
        kept += [buffer, sizes]
    values = _Values(
        ctypes.sizeof(_Values),
        None,
        count,
        ctypes.cast(kinds, POINTER(c_int)),
        ctypes.cast(pointers, POINTER(c_void_p)),
    )
    return values, [*kept, kinds, pointers]


_runs = itertools.count(1)


class Handler:
    """The handlers of a target, by stage."""

    def __init__(self, name: str, stages: Mapping[str, int]) -> None:
        self.name = name
        self._stages = {STAGES.index(stage): _Function(address) for stage, address in stages.items()}

    def instance(self, attributes: Mapping[str, Any]) -> Callable[[Sequence[Array], Sequence[Array]], None]:
        """The function of arguments and of the results' memory that these attributes make of the target.

        Raises:
            KernelError: when it is called: an error of the handler.
        """
        encoded, states = _Encoded(attributes), dict[tuple[int, int], int]()
        if 0 in self._stages:
            self._run(0, _buffers(())[0], _buffers(())[0], encoded, states)

        def call(arguments: Sequence[Array], results: Sequence[Array]) -> None:
            (args, kept_arguments), (rets, kept_results) = _buffers(arguments), _buffers(results)
            for stage in range(1, len(STAGES)):
                if stage in self._stages:
                    self._run(stage, args, rets, encoded, states)
            del kept_arguments, kept_results  # they are needed until here

        return call

    def _run(
        self, stage: int, args: _Values, rets: _Values, encoded: _Encoded, states: dict[tuple[int, int], int]
    ) -> None:
        host = _host()
        context = host.add(_Context(states, next(_runs)))
        frame = _CallFrame(
            _CallFrame.future.offset,  # the size up to the field before
            None,
            ctypes.addressof(host.api),
            context,
            stage,
            args,
            rets,
            encoded.structure,
        )
        try:
            error = self._stages[stage](ctypes.addressof(frame))
            failure = host.objects.pop(error) if error else None
            if frame.future:
                future = host.objects[frame.future]
                future.event.wait()
                del host.objects[frame.future]
                failure = failure or future.failure
        finally:
            del host.objects[context]
        if failure is not None:
            code = _CODES[failure.code] if failure.code < len(_CODES) else f"error {failure.code}"
            raise KernelError(
                f"custom-call: the target {self.name!r} failed. {code}: {failure.message.decode(errors='replace')}"
            )


# --- registration -----------------------------------------------------------------------------------------------------

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


def is_capsule(x: Any) -> bool:
    """Whether this is a PyCapsule."""
    return type(x).__name__ == "PyCapsule"


def capsule(address: int) -> Any:
    """An address as a PyCapsule."""
    return _new_capsule(address, None, None)


def address_in(x: Any) -> int:
    """The address that a PyCapsule has."""
    return _capsule_pointer(x, _capsule_name(x))


def handler_of(name: str, fn: Any) -> Handler:
    """The handler of a capsule, or of a dictionary of capsules by stage.

    Raises:
        ArgumentError: a dictionary without `execute`, with other stages, or with what is no capsule.
    """
    stages = fn if isinstance(fn, Mapping) else {"execute": fn}
    unknown = [stage for stage, x in stages.items() if stage not in STAGES or not is_capsule(x)]
    if unknown or "execute" not in stages:
        raise ArgumentError(
            f"register_ffi_target: the handlers of {name!r} must be capsules for the stages {', '.join(STAGES)}, of "
            f"which execute is needed, but are {dict(stages)!r}."
        )
    return Handler(name, {stage: address_in(x) for stage, x in stages.items()})


def register_type(name: str, type_id: Any) -> None:
    """Give a type of handlers' states its number, which is written where the capsule `type_id` points."""
    place = c_int64.from_address(address_in(type_id))
    place.value = _host().type_number(name.encode(), place.value)

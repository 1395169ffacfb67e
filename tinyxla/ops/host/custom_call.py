"""CustomCall: a function of the host as an op, under a name that it has been registered with.

Source: section "CustomCall" of the XLA documents, and "XLA Custom Calls" for the form `void f(void *out, void **in)`:
`in` points to the operands' memory, one pointer for each; `out` is the result's memory, or an array of such pointers if
the result is a tuple.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import (
    ArgumentError,
    BatchingError,
    DifferentiationError,
    KernelError,
    ShapeError,
)
from tinyxla.hlo import Computation
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Axes, Joint, Op, Sample
from tinyxla.shapes import AnyShape, Shape, TupleShape


class CustomCall(NamedTuple):
    """A call of a function of the host. `shape` is the result's. `backend_config` is text for the function, which only
    those in Python and typed handlers are given; for these (the `api_version` "TYPED_FFI") it is a dictionary of
    attributes. `batch_rule`, if given, is how `vmap` maps this call, rather than the rule of its target. A function in
    C finds in the memory of a result the operand that it is paired with in `output_to_operand_aliasing`, where a result
    is named by its place in the tuple of results, () without one.
    """

    custom_call_target: str
    shape: AnyShape
    custom_call_has_side_effect: bool = False
    backend_config: str = ""
    called_computations: tuple[Computation, ...] = ()  # that a text names; targets do not need them
    batch_rule: Callable[..., Any] | None = None  # of the size, operands, their axes, and the other attributes
    output_to_operand_aliasing: tuple[tuple[tuple[int, ...], int], ...] = ()
    api_version: str = "ORIGINAL"


class Target(NamedTuple):
    """A registered function and its rules; a missing rule is an error where it is asked for.

    `address`, if given, compiles `void f(T *in0, T *in1, ..., T *out0, ...)` and gives its address: compiled programs
    call that without Python.
    """

    compute: Callable[..., Any]  # of arrays, and the attributes by keyword
    jvp: Callable[..., Any] | None = None
    vjp: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    address: Callable[[], int] | None = None


targets: dict[str, Target] = {}
failures: dict[int, str] = {}  # by thread, a target that raised in native code; the program's call raises an error
known_targets: dict[str, Target] = {}  # those that need no registration; registered ones come before them


def raise_failure() -> None:
    """Raise the error of a target that raised an exception in native code on this thread, if one did."""
    name = failures.pop(threading.get_ident(), None)
    if name is not None:
        raise KernelError(
            f"The kernel {name.split('.')[1]} raised an exception in a compiled program, whose results are not valid. "
            "Call it inside of `with tinyxla.disable_jit():` to see which."
        )


def find_target(name: str) -> Target:
    """The function with that name; an error that names those there are."""
    found = targets.get(name) or known_targets.get(name)
    if found is None:
        known = ", ".join(map(repr, sorted(targets))) or "none"
        raise KernelError(
            f"custom-call: there is no target {name!r}; register one with tinyxla.ffi.register_ffi_target. Registered "
            f"are: {known}."
        )
    return found


def rule_of(name: str, kind: str, error: type[Exception] = DifferentiationError) -> Callable[..., Any]:
    """A rule of a target, which it must have."""
    found = getattr(targets.get(name) or known_targets.get(name), kind, None)
    if found is None:
        other = ", or vmap_method= to ffi_call" if kind == "batch" else ""
        raise error(f"custom-call: the target {name!r} has no {kind} rule; give {kind}= to register_ffi_target{other}.")
    return found


def results_of(shape: AnyShape) -> tuple[Shape, ...]:
    """The arrays that a result consists of."""
    elements = shape.elements if isinstance(shape, TupleShape) else (shape,)
    return tuple(x for x in elements if isinstance(x, Shape))


def memory_of(operands: Sequence[Array], attributes: CustomCall) -> tuple[list[Array], list[Array]]:
    """The operands in row-major memory, and memory for the results, which has the operand that a result aliases."""
    inputs = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in operands]
    outputs = [np.empty(s.dimensions, s.dtype) for s in results_of(attributes.shape)]
    for path, operand in attributes.output_to_operand_aliasing:
        outputs[path[0] if path else 0][...] = inputs[operand]
    return inputs, outputs


def native(address: int) -> Callable[..., Any]:
    """A C function `void f(void *out, void **in)`, as a function of arrays."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))(address)

    def compute(*operands: Array, attributes: CustomCall) -> Any:
        inputs, outputs = memory_of(operands, attributes)
        given = _pointers(inputs)
        if isinstance(attributes.shape, TupleShape):
            function(ctypes.cast(_pointers(outputs), ctypes.c_void_p), given)
            return tuple(outputs)
        function(outputs[0].ctypes.data, given)
        return outputs[0]

    return compute


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(x.ctypes.data for x in arrays))


def _shape(*operands: AnyShape, **attributes: Any) -> AnyShape:
    shape: AnyShape = attributes["shape"]
    elements = shape.elements if isinstance(shape, TupleShape) else (shape,)
    if not all(isinstance(x, Shape) for x in (*operands, *elements)):
        raise ShapeError(f"custom-call: operands and results must be arrays, but are {operands} and {shape}.")
    return shape


def _evaluate(*operands: Any, **attributes: Any) -> Any:
    given = CustomCall(**attributes)
    name = given.custom_call_target
    found = find_target(name).compute(*operands, attributes=given)
    parts = found if isinstance(found, (tuple, list)) else (found,)
    arrays = [np.asarray(x) for x in parts]
    expected = results_of(given.shape)
    if [Shape.of(x) for x in arrays] != list(expected):
        raise ArgumentError(
            f"custom-call: the target {name!r} must give {given.shape}, but gave "
            f"{TupleShape(tuple(map(Shape.of, arrays)))}."
        )
    return tuple(arrays) if isinstance(given.shape, TupleShape) else arrays[0]


def _forward(tangents: tuple[Any, ...], *operands: Any, **attributes: Any) -> tuple[Any, Any]:
    rule = rule_of(attributes["custom_call_target"], "jvp")
    ans = custom_call(*operands, **attributes)
    return ans, rule(tangents, ans, *operands)


def _reverse(wanted: tuple[bool, ...], *operands: Any, **attributes: Any) -> tuple[Any, Callable[[Any], Any]]:
    rule = rule_of(attributes["custom_call_target"], "vjp")
    ans = custom_call(*operands, **attributes)
    return ans, lambda g: rule(g, ans, *operands)


def _batch(size: int, operands: tuple[Any, ...], axes: Axes, **attributes: Any) -> Any:
    rule = attributes.get("batch_rule")
    if rule is not None:
        return rule(size, operands, axes, CustomCall(**attributes))
    return rule_of(attributes["custom_call_target"], "batch", BatchingError)(size, operands, axes)


def _product(x: Any, y: Any) -> Any:
    return custom_call(x, y, custom_call_target="sample.product", shape=Shape.of(x))


def _product_jvp(tangents: Any, ans: Any, x: Any, y: Any) -> Any:
    dx, dy = (elementwise.zeros_like(x) if t is None else t for t in tangents)
    return elementwise.add(_product(dx, y), _product(x, dy))


def _product_batch(size: int, operands: Any, axes: Any) -> Any:
    return _product(*movement.in_front(operands, axes, size)), 0


def _both_batch(size: int, operands: Any, axes: Any) -> Any:
    x, y = movement.in_front(operands, axes, size)
    shape = TupleShape((Shape.of(x), Shape.of(y)))
    return custom_call(x, y, custom_call_target="sample.both", shape=shape, custom_call_has_side_effect=True), (0, 0)


_SAMPLES = {
    "sample.product": Target(
        lambda x, y, attributes: x * y,
        _product_jvp,
        lambda g, ans, x, y: (_product(g, y), _product(g, x)),
        _product_batch,
    ),
    "sample.both": Target(lambda x, y, attributes: (x + y, x * y), batch=_both_batch),
}


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    targets.update(_SAMPLES)
    for dtype in (np.float32, np.complex64):
        x, y = movement.sample_values((2, 3), dtype), movement.sample_values((2, 3), dtype) + dtype(0.5)
        yield Sample((x, y), {"custom_call_target": "sample.product", "shape": Shape.of(x)})
    n = movement.sample_values((3,), np.int32)
    attributes = {"custom_call_target": "sample.both", "shape": TupleShape((Shape.of(n),) * 2)}
    yield Sample((n, n + 1), {**attributes, "custom_call_has_side_effect": True})


custom_call = Op(
    "custom-call",
    attributes=CustomCall,
    shape=_shape,
    evaluate=_evaluate,
    derivative=Joint(_forward, _reverse),
    batch=_batch,
    samples=_samples,
)

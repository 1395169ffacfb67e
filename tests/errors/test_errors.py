"""Bad input gives a typed error, in plain sentences that name the values and the user's own line; and nothing
crashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinyxla as tx
from tinyxla import errors
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    DifferentiationError,
    DTypeError,
    LeakedTracerError,
    NumberRangeError,
    OutOfBoundsError,
    PytreeError,
    ShapeError,
    SizeError,
    TinyxlaError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerError,
    TracerIntegerConversionError,
)

tnp = tx.numpy
lax = tx.lax


@contextmanager
def raises(kind: type[TinyxlaError], *parts: str) -> Iterator[Any]:
    """An error of this kind, or a narrower one, whose text has these parts, and which names a line of this file."""
    with pytest.raises(TinyxlaError) as caught:
        yield caught
    assert isinstance(caught.value, kind), caught.value
    check_text(caught.value, *parts)


def check_text(error: TinyxlaError, *parts: str) -> None:
    text = str(error)
    for part in parts:
        assert part in text, text
    assert error.line is not None
    assert error.line.file == __file__
    sentence, _, where = text.rpartition("\n  at ")
    assert where.startswith(f"{__file__}:{error.line.line} ")
    assert sentence.rstrip().endswith("."), text
    assert "\n" not in sentence
    assert text.count("  at ") == 1, text


# --- operations on arrays of unsuitable shapes and types --------------------------------------------------------------

Case = tuple[type[TinyxlaError], tuple[str, ...], Callable[..., Any]]


def operands() -> SimpleNamespace:
    """Arrays for the cases: a and b are matrices that do not fit, v is a vector, s a scalar, k of integers."""
    return SimpleNamespace(
        a=np.ones((2, 3), np.float32),
        b=np.ones((4, 3), np.float32),
        v=np.ones(3, np.float32),
        s=np.ones((), np.float32),
        k=np.ones((2, 3), np.int32),
    )


CASES: dict[str, Case] = {
    # broadcasting
    "add": (ShapeError, ("add", "(2, 3)", "(4, 3)", "must be equal, or one of them 1"), lambda o: o.a + o.b),
    "compare": (ShapeError, ("(2, 3)", "(4, 3)"), lambda o: o.a < o.b),
    "where": (ShapeError, ("(2, 3)", "(4, 3)"), lambda o: tnp.where(o.a > 0, o.b, 0.0)),
    "power": (ShapeError, ("power", "(2, 3)", "(2,)"), lambda o: o.a ** o.v[:2]),
    "broadcast_to": (ShapeError, ("broadcast_to", "(2, 3)", "(3, 2)"), lambda o: tnp.broadcast_to(o.a, (3, 2))),
    "NumPy's add": (ShapeError, ("add", "(2, 3)", "(4, 3)"), lambda o: np.add(o.a, o.b)),
    # contractions
    "matmul": (ShapeError, ("matmul", "(2, 3)", "(4, 3)", "size 3", "4"), lambda o: o.a @ o.b),
    "matmul of vectors": (ShapeError, ("matmul", "(3,)", "(4, 3)"), lambda o: o.v @ o.b),
    "matmul of a scalar": (ShapeError, ("matmul", "use multiply"), lambda o: o.a @ o.s),
    "dot": (ShapeError, ("dot", "(2, 3)", "(4, 3)"), lambda o: tnp.dot(o.a, o.b)),
    "lax.dot": (ShapeError, ("dot", "f32[2,3]"), lambda o: lax.dot(o.a, o.b)),
    "dot_general": (ShapeError, ("axis 7",), lambda o: lax.dot_general(o.a, o.b, (((7,), (1,)), ((), ())))),
    "einsum": (ShapeError, ("einsum", "'j'", "3 and 4"), lambda o: tnp.einsum("ij,jk->ik", o.a, o.b)),
    "einsum of too few": (ArgumentError, ("einsum", "2 operands"), lambda o: tnp.einsum("i,j", o.a)),
    # movement
    "concatenate": (ShapeError, ("concatenate", "(2, 3)", "(4, 3)"), lambda o: tnp.concatenate([o.a, o.b], 1)),
    "concatenate of ranks": (ShapeError, ("2 and 1 dimensions",), lambda o: tnp.concatenate([o.a, o.v])),
    "concatenate of nothing": (ArgumentError, ("at least one array",), lambda o: tnp.concatenate([])),
    "stack": (ShapeError, ("stack", "(2, 3)", "(4, 3)"), lambda o: tnp.stack([o.a, o.b])),
    "reshape": (ShapeError, ("reshape", "6 elements", "(4,)"), lambda o: o.a.reshape(4)),
    "reshape with a rest": (ShapeError, ("reshape", "6 elements", "(-1, 4)"), lambda o: o.a.reshape(-1, 4)),
    "reshape with two": (ShapeError, ("at most one size is -1",), lambda o: o.a.reshape(-1, -1)),
    "reshape to text": (ArgumentError, ("reshape", "'a'"), lambda o: o.a.reshape("a")),
    "reshape to a fraction": (ArgumentError, ("reshape", "2.0"), lambda o: o.a.reshape(2.0, 3)),
    "transpose": (ShapeError, ("transpose", "(0, 0)"), lambda o: o.a.transpose(0, 0)),
    "lax.transpose": (ShapeError, ("transpose", "f32[2,3]"), lambda o: lax.transpose(o.a, (0, 2))),
    "squeeze": (ShapeError, ("squeeze", "size 2, not 1"), lambda o: tnp.squeeze(o.a, 0)),
    "expand_dims": (ShapeError, ("expand_dims", "7"), lambda o: tnp.expand_dims(o.a, 7)),
    "split": (ShapeError, ("split", "does not divide"), lambda o: tnp.split(o.a, 2, axis=1)),
    "swapaxes": (ShapeError, ("swapaxes", "axis 3"), lambda o: tnp.swapaxes(o.a, 0, 3)),
    "lax.slice": (ShapeError, ("slice", "f32[2,3]", "0 <= start <= limit"), lambda o: lax.slice(o.a, (0, 0), (5, 5))),
    "lax.pad": (ShapeError, ("pad", "1 entries", "rank 2"), lambda o: lax.pad(o.a, 0.0, ((0, 0, 0),))),
    "lax.rev": (ShapeError, ("reverse", "4"), lambda o: lax.rev(o.a, (4,))),
    "lax.reshape": (ShapeError, ("reshape", "f32[2,3]", "make 7"), lambda o: lax.reshape(o.a, (7,))),
    "broadcast_in_dim": (ShapeError, ("5",), lambda o: lax.broadcast_in_dim(o.a, (2, 3), (0, 5))),
    "dynamic_slice": (ShapeError, ("dynamic-slice", "(3, 3)"), lambda o: lax.dynamic_slice(o.a, (0, 0), (3, 3))),
    # axes
    "sum": (ShapeError, ("sum: axis 2 is out of range", "use one from -2 to 1"), lambda o: o.a.sum(axis=2)),
    "sum over text": (ShapeError, ("sum: an axis is an integer", "'x'"), lambda o: o.a.sum(axis="x")),
    "sum twice": (ShapeError, ("(0, 0)", "twice"), lambda o: o.a.sum(axis=(0, 0))),
    "sum of a scalar": (ShapeError, ("a scalar has no axes",), lambda o: o.s.sum(axis=0)),
    "argmax": (ShapeError, ("argmax: axis 4",), lambda o: tnp.argmax(o.a, axis=4)),
    "sort": (ShapeError, ("sort", "axis 4"), lambda o: tnp.sort(o.a, axis=4)),
    "softmax": (ShapeError, ("axis 5",), lambda o: tx.nn.softmax(o.a, axis=5)),
    "maximum of nothing": (ShapeError, ("empty", "initial"), lambda o: o.v[:0].max()),
    # element types
    "lax.add": (DTypeError, ("f32[2,3]", "s32[2,3]", "convert"), lambda o: lax.add(o.a, o.k)),
    "bits of floats": (DTypeError, ("f32[2,3]", "not defined"), lambda o: ~o.a),
    "shift of floats": (DTypeError, ("f32[2,3]",), lambda o: o.a << 1),
    "astype": (DTypeError, ("'foo'", "float32", "bfloat16"), lambda o: o.a.astype("foo")),
    "sine of text": (DTypeError, ("sin", "'a' of type str"), lambda o: tnp.sin("a")),
    "sine of a list": (DTypeError, ("sin", "list", "asarray"), lambda o: tnp.sin([1, 2])),
    "sum with a list": (DTypeError, ("add", "list", "asarray"), lambda o: o.v + [1, 2, 3]),  # noqa: RUF005
    "too large a number": (NumberRangeError, ("300", "int8"), lambda o: o.a.astype("int8") + 300),
    # indices
    "index": (OutOfBoundsError, ("index 5", "axis 0 of size 2"), lambda o: o.a[5]),
    "negative index": (OutOfBoundsError, ("index -4", "size 3"), lambda o: o.a[:, -4]),
    "too many indices": (OutOfBoundsError, ("3 indices", "(2, 3)"), lambda o: o.a[0, 0, 0]),
    "text as index": (DTypeError, ("'a' is no index",), lambda o: o.a["a"]),
    "fraction as index": (DTypeError, ("integers or booleans",), lambda o: o.a[1.5]),
    "array as index": (OutOfBoundsError, ("index 7", "size 3"), lambda o: o.v[np.array([0, 7])]),
    "mask": (OutOfBoundsError, ("mask", "4", "3"), lambda o: o.v[np.ones(4, bool)]),
    "step of zero": (ArgumentError, ("step 0",), lambda o: o.v[::0]),
    "at": (OutOfBoundsError, ("index 5",), lambda o: o.a.at[5].set(1.0)),
    "at with too much": (ShapeError, ("(2,)", "()"), lambda o: o.v.at[0].set(np.ones(2))),
    # writing
    "assignment": (ArgumentError, ("immutable", "x.at[0].set(y)"), lambda o: o.v.__setitem__(0, 1.0)),
    "out": (TracerError, ("numpy.add(out=...)", "immutable"), lambda o: np.add(o.v, 1, out=o.v)),
    "out of an array": (TracerError, ("numpy.sin(out=...)",), lambda o: np.sin(np.ones(3), out=o.v)),
    "ufunc.at": (TracerError, ("numpy.add.at", "immutable"), lambda o: np.add.at(o.v, 0, 1)),
    # others
    "length of a scalar": (ArgumentError, ("len()", "without dimensions"), lambda o: len(o.s)),
    "iteration over a scalar": (ArgumentError, ("cannot be iterated",), lambda o: list(o.s)),
}


def eager(function: Callable[[Any], Any]) -> Any:
    return function(SimpleNamespace(**{name: tnp.asarray(x) for name, x in vars(operands()).items()}))


def under(transform: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[Callable[[Any], Any]], Any]:
    def run(function: Callable[[Any], Any]) -> Any:
        names, values = zip(*vars(operands()).items(), strict=True)
        return transform(lambda *arrays: function(SimpleNamespace(**dict(zip(names, arrays, strict=True)))))(*values)

    return run


def mapped(function: Callable[[Any], Any]) -> Any:
    names, values = zip(*vars(operands()).items(), strict=True)
    stacked = [np.stack([x] * 5, axis=-1) for x in values]
    return tx.vmap(lambda *arrays: function(SimpleNamespace(**dict(zip(names, arrays, strict=True)))), -1)(*stacked)


def differentiated(function: Callable[[Any], Any]) -> Any:
    def of_float(a: Any, b: Any, v: Any, s: Any) -> Any:
        return tnp.sum(function(SimpleNamespace(a=a, b=b, v=v, s=s, k=operands().k)))

    o = operands()
    return tx.grad(of_float, (0, 1, 2, 3))(o.a, o.b, o.v, o.s)


MODES = {"eager": eager, "jit": under(tx.jit), "vmap": mapped, "grad": differentiated}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_bad_operands(name: str, mode: str) -> None:
    """The text is the same wherever the operation stands: shapes are those that the user sees."""
    kind, parts, function = CASES[name]
    with raises(kind, *parts) as caught:
        MODES[mode](function)
    assert caught.value.line.line == function.__code__.co_firstlineno
    assert float(tnp.ones(2).sum()) == 2.0  # nothing is left behind


CREATION: dict[str, Case] = {
    "negative size": (ShapeError, ("zeros: the shape (2, -1)", "negative"), lambda: tnp.zeros((2, -1))),
    "fraction": (ArgumentError, ("ones: a size is an integer", "2.5"), lambda: tnp.ones(2.5)),
    "text": (DTypeError, ("'a'", "numbers"), lambda: tnp.array("a")),
    "ragged": (ShapeError, ("unequal lengths", "rectangular"), lambda: tnp.array([[1], [2, 3]])),
    "none": (DTypeError, ("None",), lambda: tnp.array(None)),
    "objects": (DTypeError, ("objects",), lambda: tnp.array(np.array([object()]))),
    "element type": (DTypeError, ("'foo'", "float32"), lambda: tnp.array([1], dtype="foo")),
    "range without step": (ArgumentError, ("step is 0",), lambda: tnp.arange(0, 10, 0)),
    "endless range": (ArgumentError, ("finite",), lambda: tnp.arange(float("inf"))),
    "negative number of points": (ShapeError, ("num", "-2"), lambda: tnp.linspace(0, 1, -2)),
    "too large an integer": (NumberRangeError, ("1099511627776", "int32"), lambda: tnp.asarray(2**40)),
    "text in a list": (DTypeError, ("'a' of type str.",), lambda: tnp.array(["a"])),
    "set": (DTypeError, ("{1, 2}", "make a list of its elements"), lambda: tnp.asarray({1, 2})),
    "long list": (DTypeError, ("[0, 0, 0, 0, 0, 0, ...]", "tinyxla.numpy.asarray"), lambda: tnp.sin([0] * 1000)),
    "no key": (ArgumentError, ("random.normal: the first argument is a key, ", " 3."), lambda: tx.random.normal(3)),
    "complex among real numbers": (
        DTypeError,
        ("complex number 1j", "float32", "real part"),
        lambda: tnp.ones(3).at[0].set(1j),
    ),
    "too large a seed": (NumberRangeError, ("random.key: the seed", "64 bits"), lambda: tx.random.key(1 << 64)),
    "negative shape of random numbers": (ShapeError, ("(-1,)",), lambda: tx.random.normal(tx.random.key(0), (-1,))),
    "Array()": (ArgumentError, ("asarray",), lambda: tx.Array(3)),
    "Array() without arguments": (ArgumentError, ("asarray",), lambda: tx.Array()),
    "structure": (DTypeError, ("'foo'",), lambda: tx.ShapeDtypeStruct((2,), "foo")),
    "more than memory has": (SizeError, ("f32[4611686018427387904,4]",), lambda: tnp.zeros((1 << 62, 4))),
    "more than numbers count": (SizeError, ("18446744073709551616",), lambda: tnp.zeros(1 << 64)),
    "option": (AttributeValueError, ("'foo'", "enable_x64"), lambda: tx.config.update("foo", True)),
    "value of an option": (AttributeValueError, ("'no'",), lambda: tx.config.update("enable_x64", "no")),
    "method as option": (AttributeValueError, ("'update'",), lambda: tx.config.update("update", True)),
}


@pytest.mark.parametrize("name", CREATION)
def test_bad_values(name: str) -> None:
    kind, parts, function = CREATION[name]
    with raises(kind, *parts):
        function()


# --- conversion of arrays to Python values ----------------------------------------------------------------------------

CONVERSIONS: dict[str, Case] = {
    "bool": (ShapeError, ("(3,)", "neither true nor false", ".any()"), bool),
    "bool of nothing": (ShapeError, ("(0,)",), lambda x: bool(x[:0])),
    "int": (ArgumentError, ("int()", "(3,)"), int),
    "float": (ArgumentError, ("float()", "(3,)"), float),
    "complex": (ArgumentError, ("complex()", "(3,)"), complex),
    "item": (ShapeError, ("item()", "(3,)", "tolist()"), lambda x: x.item()),
    "index": (ArgumentError, ("A Python integer (an index, ", "(3,)"), lambda x: [1, 2][x]),
    "index that is no integer": (ArgumentError, ("float32", "astype(int)"), lambda x: [1, 2][x[0]]),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_arrays_that_are_no_single_value(name: str) -> None:
    kind, parts, function = CONVERSIONS[name]
    with raises(kind, *parts):
        function(tnp.ones(3))


def test_arrays_of_one_element_are_values() -> None:
    one = tnp.asarray(1)
    assert (bool(one), int(one), float(one), complex(one), one.item(), [5, 6][one]) == (True, 1, 1.0, 1 + 0j, 1, 6)
    assert bool(tnp.ones((1, 1)))
    assert tnp.ones((1, 1)).item() == 1.0


# --- tracers ----------------------------------------------------------------------------------------------------------

NEEDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "if": ("A Python condition", lambda x: 1 if x > 0 else 2),
    "while": ("A Python condition", lambda x: next(iter(int, 1)) if not x else 1),
    "bool": ("A Python condition", bool),
    "and": ("A Python condition", lambda x: x and 1),
    "chained comparison": ("A Python condition", lambda x: 0 < x < 1),
    "membership": ("A Python condition", lambda x: x in [1, 2]),
    "minimum": ("A Python condition", lambda x: min(x, 2.0)),
    "int": ("int()", int),
    "float": ("float()", float),
    "complex": ("complex()", complex),
    "index": ("A Python integer", lambda x: [1, 2][x]),
    "range": ("A Python integer", lambda x: range(x)),
    "size": ("A Python integer (an index, a size,", lambda x: tnp.zeros(x)),
    "item": ("item()", lambda x: x.item()),
    "tolist": ("tolist()", lambda x: x.tolist()),
    "numpy": ("A NumPy array", lambda x: np.asarray(x)),
    "format": ("format()", lambda x: f"{x:.2f}"),
}


WHERE_PYTHON_ASKS = {
    "A Python condition": TracerBoolConversionError,
    "A Python integer": TracerIntegerConversionError,
    "A Python integer (an index, a size,": TracerIntegerConversionError,
    "A NumPy array": TracerArrayConversionError,
}


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("where", ["jit", "vmap", "jit of vmap"])
def test_a_value_that_is_not_known(where: str, need: str) -> None:
    said, function = NEEDS[need]
    transform = {"jit": tx.jit, "vmap": tx.vmap, "jit of vmap": lambda f: tx.jit(tx.vmap(f))}[where]
    place = "vmap" if "vmap" in where else "the traced function careful"

    def careful(x: Any) -> Any:
        function(x)
        return x

    kind = WHERE_PYTHON_ASKS.get(said, ConcretizationError)
    with raises(kind, said, "needs the value of a traced array", place, "static_argnums") as caught:
        transform(careful)(np.ones(3, np.int32) if "vmap" in where else 1)
    assert caught.value.line.function == "<lambda>" or "function(x)" in str(caught.value)


class Holder:
    kept: Any = None


def leak(through: Callable[[Callable[[Any], Any], Any], Any], store: str) -> Any:
    """A tracer that outlives its trace."""
    found: dict[str, Any] = {}
    elements: list[Any] = []

    def function(x: Any) -> Any:
        y = x * 2.0
        if store == "list":
            elements.append(y)
        elif store == "attribute":
            Holder.kept = y
        else:
            found["y"] = y
        return y.sum()

    through(function, np.ones(3, np.float32))
    return elements[0] if store == "list" else Holder.kept if store == "attribute" else found["y"]


LEAKS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "jit": lambda f, x: tx.jit(f)(x),
    "grad": lambda f, x: tx.grad(f)(x),
    "vmap": lambda f, x: tx.vmap(f)(x[None]),
    "jvp": lambda f, x: tx.jvp(f, (x,), (x,)),
    "jit of grad": lambda f, x: tx.jit(tx.grad(f))(x),
    "graph": lambda f, x: tx.make_graph(f)(x),
}


@pytest.mark.parametrize("store", ["list", "attribute", "dict"])
@pytest.mark.parametrize("through", LEAKS)
def test_leaked_tracers(through: str, store: str) -> None:
    leaked = leak(LEAKS[through], store)
    assert "Tracer" in repr(leaked)
    uses: list[Callable[[], Any]] = [
        lambda: leaked + 1,
        lambda: tnp.stack([leaked, leaked]),
        lambda: tx.jit(lambda x: x * leaked)(1.0),
        lambda: tx.grad(lambda x: (x * leaked).sum())(1.0),
        lambda: tx.vmap(lambda x: x * leaked)(np.ones(2)),
        lambda: tx.jit(lambda x: x)(leaked),
    ]
    for use in uses:
        with raises(LeakedTracerError, "has ended", "Return the value from the function instead of storing it"):
            use()
    if through in ("jit", "graph"):
        with raises(LeakedTracerError, "It was made at", "y = x * 2.0"):
            leaked + 1
        with raises(LeakedTracerError, "has ended"):
            bool(leaked)


# --- transformations --------------------------------------------------------------------------------------------------

TWO = np.ones((2, 3), np.float32)
ONE = np.ones(3, np.float32)
TRANSFORMATIONS: dict[str, Case] = {
    # what is given
    "jit of no function": (ArgumentError, ("jit takes a function", "3 of type int"), lambda: tx.jit(3)),
    "grad of no function": (ArgumentError, ("grad takes a function",), lambda: tx.grad("f")),
    "vmap of no function": (ArgumentError, ("vmap takes a function",), lambda: tx.vmap(None)),
    "vjp of no function": (ArgumentError, ("vjp takes a function",), lambda: tx.vjp(3, 1.0)),
    "jvp of no function": (ArgumentError, ("jvp takes a function",), lambda: tx.jvp(3, (1.0,), (1.0,))),
    "jacfwd of no function": (ArgumentError, ("jacfwd takes a function",), lambda: tx.jacfwd(3)),
    "hessian of no function": (ArgumentError, ("takes a function",), lambda: tx.hessian(3)),
    "graph of no function": (ArgumentError, ("make_graph takes a function",), lambda: tx.make_graph(3)),
    "shape of no function": (ArgumentError, ("eval_shape takes a function",), lambda: tx.eval_shape(3)),
    # grad
    "gradient of an array": (
        DifferentiationError,
        ("must return one floating-point number", "f32[3]", "Return its sum or mean, or use jacrev"),
        lambda: tx.grad(lambda x: x * 2)(ONE),
    ),
    "gradient of a pair": (
        DifferentiationError,
        ("must return one floating-point number", "tuple", "has_aux=True"),
        lambda: tx.grad(lambda x: (x, x))(1.0),
    ),
    "gradient of nothing": (DifferentiationError, ("NoneType",), lambda: tx.grad(lambda x: None)(1.0)),
    "gradient of an integer result": (DifferentiationError, ("s32[]", "int32"), lambda: tx.grad(lambda x: 3)(1.0)),
    "gradient of a condition": (DifferentiationError, ("pred[]",), lambda: tx.grad(lambda x: x > 0)(1.0)),
    "gradient of a complex result": (DifferentiationError, ("c64[]",), lambda: tx.grad(lambda x: x * 1j)(1.0)),
    "gradient by an integer": (
        DifferentiationError,
        ("argument 0 is s32[]", "no derivative", "convert it to a floating type"),
        lambda: tx.grad(lambda x: x * 2.0)(3),
    ),
    "gradient by integers in a tree": (
        DifferentiationError,
        ("argument 1['k'][0] is s32[2]",),
        lambda: tx.grad(lambda x, t: x, 1)(1.0, {"k": [np.ones(2, np.int32)]}),
    ),
    "forward Jacobian by a complex number": (
        DifferentiationError,
        ("c64[]", "holomorphic=True"),
        lambda: tx.jacfwd(lambda z: tnp.abs(z))(1j),
    ),
    "holomorphic gradient by a real number": (
        DifferentiationError,
        ("f32[]", "must be complex"),
        lambda: tx.grad(lambda z: z, holomorphic=True)(1.0),
    ),
    "gradient by text": (ArgumentError, ("argument x is 'a' of type str",), lambda: tx.grad(lambda x: x)("a")),
    "text as result": (ArgumentError, ("result", "'a' of type str"), lambda: tx.grad(lambda x: "a")(1.0)),
    "argnums": (ArgumentError, ("argument 2", "2 positional"), lambda: tx.grad(lambda x, y: x, 2)(1.0, 1.0)),
    "negative argnums": (ArgumentError, ("argument -2",), lambda: tx.grad(lambda x: x, -2)(1.0)),
    "argnums for a keyword": (ArgumentError, ("0 positional",), lambda: tx.grad(lambda x: x)(x=1.0)),
    "argnums of another type": (ArgumentError, ("argnums", "'x'"), lambda: tx.grad(lambda x: x, "x")),
    "no pair": (ArgumentError, ("has_aux=True", "f32[]"), lambda: tx.grad(lambda x: x, has_aux=True)(1.0)),
    "Jacobian by integers": (DifferentiationError, ("jacfwd", "s32[]"), lambda: tx.jacfwd(lambda x: x)(3)),
    "Jacobian of integers": (DifferentiationError, ("jacrev", "result"), lambda: tx.jacrev(lambda x: 3)(1.0)),
    # vjp and jvp
    "cotangent of another shape": (
        ShapeError,
        ("cotangent must have the shape", "f32[3]", "f32[2,3]"),
        lambda: tx.vjp(lambda x: x * 2, ONE)[1](TWO),
    ),
    "cotangent of another structure": (
        ArgumentError,
        ("structure", "(*, *)", "{'a': *}"),
        lambda: tx.vjp(lambda x: (x, x), ONE)[1]({"a": ONE}),
    ),
    "complex cotangent": (DTypeError, ("c64[3]", "f32[3]"), lambda: tx.vjp(lambda x: x * 2, ONE)[1](ONE * 1j)),
    "text as cotangent": (ArgumentError, ("cotangent", "'a'"), lambda: tx.vjp(lambda x: x, ONE)[1]("a")),
    "tangent of another shape": (ShapeError, ("tangent",), lambda: tx.jvp(lambda x: x, (ONE,), (TWO,))),
    "tangents of another number": (ArgumentError, ("tangent",), lambda: tx.jvp(lambda x: x, (ONE,), (ONE, ONE))),
    "bare primals": (ArgumentError, ("primals must be a tuple",), lambda: tx.jvp(lambda x: x, 1.0, (1.0,))),
    "bare tangents": (ArgumentError, ("tangents must be a tuple",), lambda: tx.jvp(lambda x: x, (1.0,), 1.0)),
    # vmap
    "sizes": (
        ShapeError,
        ("[2, 3]", "argument 0 is f32[2,3] and mapped over its axis 0", "argument 1['b'] is f32[3]"),
        lambda: tx.vmap(lambda x, t: x)(TWO, {"b": ONE}),
    ),
    "axis_size": (ShapeError, ("[2, 4]", "axis_size is 4"), lambda: tx.vmap(lambda x: x, axis_size=4)(TWO)),
    "negative axis_size": (ShapeError, ("axis_size", "-1"), lambda: tx.vmap(lambda: 1.0, axis_size=-1)()),
    "axis_size of another type": (ArgumentError, ("axis_size", "'a'"), lambda: tx.vmap(lambda: 1.0, axis_size="a")()),
    "in_axes out of range": (
        ShapeError,
        ("in_axes for argument 0['w']", "axis 2", "use one from -2 to 1"),
        lambda: tx.vmap(lambda t: t, in_axes=2)({"w": TWO}),
    ),
    "in_axes of a scalar": (ShapeError, ("argument 1", "a scalar has no axes"), lambda: tx.vmap(tnp.add)(ONE, 1.0)),
    "in_axes of another type": (ShapeError, ("in_axes", "integer", "'a'"), lambda: tx.vmap(lambda x: x, "a")(ONE)),
    "in_axes of another length": (
        PytreeError,
        ("in_axes must have one entry", "(0, 1) has 2", "the call has 1"),
        lambda: tx.vmap(lambda x: x, (0, 1))(TWO),
    ),
    "in_axes of another structure": (
        PytreeError,
        ("in_axes", "({'a': 0},)", "({'b': *},)"),
        lambda: tx.vmap(lambda t: t, ({"a": 0},))({"b": ONE}),
    ),
    "out_axes out of range": (ShapeError, ("out_axes", "axis 3"), lambda: tx.vmap(lambda x: x, 0, 3)(TWO)),
    "out_axes of another structure": (
        PytreeError,
        ("out_axes", "(0, 0)"),
        lambda: tx.vmap(lambda x: x, 0, (0, 0))(ONE),
    ),
    "out_axes of None": (
        AttributeValueError,
        ("out_axes is None", "differs"),
        lambda: tx.vmap(lambda x: x, 0, None)(ONE),
    ),
    "nothing to map over": (AttributeValueError, ("in_axes", "axis_size"), lambda: tx.vmap(lambda x: x, None)(ONE)),
    "no arguments": (AttributeValueError, ("axis_size",), lambda: tx.vmap(lambda: 1.0)()),
    "text to map over": (ArgumentError, ("argument 0 is 'a'",), lambda: tx.vmap(lambda x: x)("a")),
    # jit
    "text for jit": (
        ArgumentError,
        ("argument x is 'a' of type str", "static_argnums"),
        lambda: tx.jit(lambda x: x)("a"),
    ),
    "text in a tree": (
        ArgumentError,
        ("argument t['name'] is 'a' of type str",),
        lambda: tx.jit(lambda x, t: x)(1.0, {"name": "a"}),
    ),
    "text as keyword": (ArgumentError, ("argument mode is 'a'",), lambda: tx.jit(lambda x, mode: x)(1.0, mode="a")),
    "text as result of jit": (ArgumentError, ("result", "'a'"), lambda: tx.jit(lambda x: "a")(1.0)),
    "text in a result": (ArgumentError, ("result", "at ['n'][1]"), lambda: tx.jit(lambda x: {"n": (x, "a")})(1.0)),
    "list as static": (
        ArgumentError,
        ("static argument 1 is [3] of type list", "cannot be hashed", "tuple"),
        lambda: tx.jit(lambda x, n: x, static_argnums=1)(1.0, [3]),
    ),
    "array as static": (
        ArgumentError,
        ("static argument 'n'", "not static"),
        lambda: tx.jit(lambda x, n: x, static_argnames="n")(1.0, n=tnp.ones(2)),
    ),
    "static_argnums": (ArgumentError, ("static_argnums", "'n'"), lambda: tx.jit(lambda n: n, static_argnums="n")),
    "static_argnums out of range": (ArgumentError, ("has 3",), lambda: tx.jit(lambda x: x, static_argnums=3)),
    "static_argnames": (ArgumentError, ("static_argnames", "3"), lambda: tx.jit(lambda x: x, static_argnames=3)),
    "unknown name": (ArgumentError, ("'n'", "no such"), lambda: tx.jit(lambda x: x, static_argnames="n")),
    "structure for a call": (
        ArgumentError,
        ("is a ShapeDtypeStruct, which has no value", "lower()"),
        lambda: tx.jit(lambda x: x)(tx.ShapeDtypeStruct((2,), "float32")),
    ),
    "compiled for another shape": (
        ArgumentError,
        ("f32[3]", "f32[2,3]"),
        lambda: tx.jit(lambda x: x).lower(ONE).compile()(TWO),
    ),
    "compiled for another structure": (
        ArgumentError,
        ("structure (*,)", "({'a': *},)"),
        lambda: tx.jit(lambda x: x).lower(ONE).compile()({"a": ONE}),
    ),
    # others
    "text for a graph": (ArgumentError, ("argument x is 'a'",), lambda: tx.make_graph(lambda x: x)(x="a")),
    "text for a shape": (ArgumentError, ("argument 0 is 'a'",), lambda: tx.eval_shape(lambda x: x, "a")),
    "text for a value": (ArgumentError, ("device_put", "at ['k']", "'a'"), lambda: tx.device_put({"k": "a"})),
    "number for a solver": (
        ArgumentError,
        ("lax.custom_root takes a function, but got 3",),
        lambda: lax.custom_root(lambda x: x, 0.0, 3, 4),
    ),
    "another device": (
        ArgumentError,
        ("device_put", "the only device is 'cpu'", "'gpu'"),
        lambda: tx.device_put(1, "gpu"),
    ),
    "another backend": (
        ArgumentError,
        ("jit: the only device is 'cpu'", "'gpu'"),
        lambda: tx.jit(lambda x: x, backend="gpu"),
    ),
    "instance": (
        ArgumentError,
        ("argument x is namespace()", "type SimpleNamespace", "register_dataclass", "static_argnums"),
        lambda: tx.jit(lambda x: x)(SimpleNamespace()),
    ),
    "instance as result": (
        ArgumentError,
        ("The result of <lambda> is namespace()", "register_dataclass"),
        lambda: tx.jit(lambda x: SimpleNamespace())(ONE),
    ),
    "trees": (
        tx.tree_util.PytreeError,
        ("structures", "2"),
        lambda: tx.tree_util.tree_map(lambda x, y: x, [1], [1, 2]),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_bad_use_of_a_transformation(name: str) -> None:
    kind, parts, function = TRANSFORMATIONS[name]
    with raises(kind, *parts):
        function()
    assert type(tnp.ones(2) + 1).__name__ == "Array"  # no trace is left open


def test_callables_without_a_name_are_named_by_their_type() -> None:
    class Model:
        def __call__(self, x: Any) -> Any:
            return x

    for compiled in (tx.jit(Model()), tx.vmap(Model()), tx.grad(Model())):
        with raises(ArgumentError, "Model"):
            compiled("a")
    with raises(ArgumentError, "static_argnums has 4"):
        tx.jit(Model(), static_argnums=4)


def test_the_line_is_that_of_the_operation_not_of_the_call() -> None:
    def inner(x: Any) -> Any:
        return x + np.ones(4)  # this line

    for outer in (inner, tx.jit(inner), tx.grad(inner), lambda x: tx.tree_util.tree_map(inner, [x])):
        with raises(ShapeError) as caught:
            outer(tnp.ones(3))
        assert "# this line" in str(caught.value)
        assert caught.value.line.function == "inner"


def test_errors_are_also_pythons_own() -> None:
    """Code that expects NumPy's errors catches these."""
    assert issubclass(ShapeError, ValueError)
    assert issubclass(DTypeError, TypeError)
    assert issubclass(ArgumentError, TypeError)
    assert issubclass(OutOfBoundsError, IndexError)
    assert issubclass(TracerError, TypeError)
    assert issubclass(NumberRangeError, OverflowError)
    assert issubclass(SizeError, MemoryError)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    kinds = [kind for kind in kinds if not issubclass(kind, Warning)]
    assert all(issubclass(kind, TinyxlaError) and kind.__doc__ for kind in kinds)


# --- nothing crashes --------------------------------------------------------------------------------------------------

HUGE = [1 << 46, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70]  # no machine has so much memory
sizes = st.one_of(st.integers(-2, 4), st.sampled_from(HUGE))
small = st.one_of(st.integers(-5, 5), st.sampled_from([*HUGE, -(1 << 63), -(1 << 70)]))
shapes = st.lists(sizes, max_size=3).map(tuple)
several = st.lists(small, max_size=3).map(tuple)
axes = st.one_of(st.none(), small, several)
arrays = st.sampled_from([(), (0,), (1,), (3,), (2, 3), (0, 3), (3, 0), (2, 1, 3)])
indices = st.lists(
    st.one_of(
        small,
        st.builds(slice, st.none() | small, st.none() | small, st.none() | small),
        st.just(...),
        st.none(),
        st.booleans(),
        st.lists(st.integers(-5, 5), max_size=3).map(lambda x: np.array(x, int)),
    ),
    max_size=4,
).map(tuple)

Attributes = st.SearchStrategy[tuple[Any, ...]]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Attributes]] = {
    "zeros": (lambda x, s: tnp.zeros(s), st.tuples(shapes)),
    "full": (lambda x, s: lax.full(s, 1.0), st.tuples(shapes)),
    "arange": (lambda x, a, b, c: tnp.arange(a, b, c), st.tuples(st.integers(-3, 3), small, small)),
    "linspace": (lambda x, n: tnp.linspace(0.0, 1.0, n), st.tuples(sizes)),
    "eye": (lambda x, n, m, k: tnp.eye(n, m, k), st.tuples(sizes, sizes, small)),
    "tri": (lambda x, n, m, k: tnp.tri(n, m, k), st.tuples(sizes, sizes, small)),
    "iota": (lambda x, n: lax.iota("float32", n), st.tuples(sizes)),
    "broadcasted_iota": (lambda x, s, d: lax.broadcasted_iota("int32", s, d), st.tuples(shapes, small)),
    "reshape": (lambda x, s: x.reshape(s), st.tuples(shapes)),
    "lax.reshape": (lambda x, s: lax.reshape(x, s), st.tuples(shapes)),
    "broadcast_to": (lambda x, s: tnp.broadcast_to(x, s), st.tuples(shapes)),
    "broadcast_in_dim": (lambda x, s, d: lax.broadcast_in_dim(x, s, d), st.tuples(shapes, several)),
    "transpose": (lambda x, p: tnp.transpose(x, p), st.tuples(axes)),
    "lax.transpose": (lambda x, p: lax.transpose(x, p), st.tuples(several)),
    "expand_dims": (lambda x, d: tnp.expand_dims(x, d), st.tuples(axes)),
    "squeeze": (lambda x, d: tnp.squeeze(x, d), st.tuples(axes)),
    "moveaxis": (lambda x, a, b: tnp.moveaxis(x, a, b), st.tuples(small, small)),
    "flip": (lambda x, d: tnp.flip(x, d), st.tuples(axes)),
    "roll": (lambda x, n, d: tnp.roll(x, n, d), st.tuples(small, axes)),
    "rev": (lambda x, d: lax.rev(x, d), st.tuples(several)),
    "slice": (lambda x, a, b, c: lax.slice(x, a, b, c), st.tuples(several, several, st.none() | several)),
    "slice_in_dim": (lambda x, a, b, c, d: lax.slice_in_dim(x, a, b, c, d), st.tuples(small, small, small, small)),
    "pad": (lambda x, w: tnp.pad(x, w), st.tuples(small | st.tuples(small, small))),
    "lax.pad": (lambda x, w: lax.pad(x, 0.0, w), st.tuples(st.lists(st.tuples(small, small, small), max_size=3))),
    "concatenate": (lambda x, d: tnp.concatenate([x, x], d), st.tuples(small)),
    "stack": (lambda x, d: tnp.stack([x, x], d), st.tuples(small)),
    "split": (lambda x, n, d: tnp.split(x, n, d), st.tuples(small | several, small)),
    "repeat": (lambda x, n, d: tnp.repeat(x, n, d), st.tuples(sizes, st.none() | small)),
    "tile": (lambda x, n: tnp.tile(x, n), st.tuples(shapes)),
    "getitem": (lambda x, i: x[i], st.tuples(indices)),
    "set": (lambda x, i: x.at[i].set(2.0), st.tuples(indices)),
    "add": (lambda x, i: x.at[i].add(2.0), st.tuples(indices)),
    "take": (lambda x, i, d: tnp.take(x, np.array(i), d), st.tuples(st.lists(st.integers(-9, 9)), st.none() | small)),
    "dynamic_slice": (lambda x, a, s: lax.dynamic_slice(x, a, s), st.tuples(several, shapes)),
    "dynamic_update_slice": (lambda x, a: lax.dynamic_update_slice(x, x, a), st.tuples(several)),
    "sum": (lambda x, d: x.sum(d), st.tuples(axes)),
    "max": (lambda x, d: x.max(d), st.tuples(axes)),
    "argmax": (lambda x, d: x.argmax(d), st.tuples(st.none() | small)),
    "mean": (lambda x, d: x.mean(d), st.tuples(axes)),
    "cumsum": (lambda x, d: tnp.cumsum(x, d), st.tuples(st.none() | small)),
    "sort": (lambda x, d: tnp.sort(x, d), st.tuples(st.none() | small)),
    "top_k": (lambda x, k: lax.top_k(x, k), st.tuples(small)),
    "dot_general": (
        lambda x, a, b, c, d: lax.dot_general(x, x, ((a, b), (c, d))),
        st.tuples(several, several, several, several),
    ),
    "matmul": (lambda x, s: x @ np.ones(s, np.float32), st.tuples(arrays)),
    "tensordot": (lambda x, n: tnp.tensordot(x, x, n), st.tuples(small)),
    "diagonal": (lambda x, k, a, b: tnp.diagonal(x, k, a, b), st.tuples(small, small, small)),
    "diag": (lambda x, k: tnp.diag(x, k), st.tuples(small)),
    "triu": (lambda x, k: tnp.triu(x, k), st.tuples(small)),
    "softmax": (lambda x, d: tx.nn.softmax(x, d), st.tuples(axes)),
    "one_hot": (lambda x, n: tx.nn.one_hot(x.astype("int32"), n), st.tuples(sizes)),
    "normal": (lambda x, s: tx.random.normal(tx.random.key(0), s), st.tuples(shapes)),
    "key splitting": (lambda x, n: tx.random.split(tx.random.key(0), n), st.tuples(sizes)),
    "convert": (
        lambda x, t: x.astype(t),
        st.tuples(st.sampled_from(["int8", "bool", "bfloat16", "complex64", "f", ""])),
    ),
    "bitcast": (
        lambda x, t: lax.bitcast_convert_type(x, t),
        st.tuples(st.sampled_from(["int8", "int32", "bool", "int64"])),
    ),
}


def outcome(function: Callable[[], Any]) -> Sequence[np.ndarray[Any, Any]] | type[Exception]:
    """The results, or the error's type if it is one that users are promised."""
    try:
        leaves = tx.tree_util.tree_leaves(function())
        return [np.asarray(x) for x in leaves]
    except TinyxlaError as error:
        check_text(error)
        return type(error)
    except MemoryError as error:
        return type(error)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_attributes_give_a_result_or_a_typed_error(name: str, data: st.DataObject) -> None:
    function, attributes = FUNCTIONS[name]
    shape = data.draw(arrays)
    given_attributes = data.draw(attributes)
    outcome(lambda: function(tnp.ones(shape), *given_attributes))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=12)
@given(data=st.data())
def test_compiled_functions_agree_with_eager_ones_on_any_attributes(name: str, data: st.DataObject) -> None:
    function, attributes = FUNCTIONS[name]
    shape = data.draw(arrays)
    given_attributes = data.draw(attributes)
    x = tnp.asarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    found = outcome(lambda: tx.jit(lambda x: function(x, *given_attributes))(x))
    expected = outcome(lambda: function(x, *given_attributes))
    if isinstance(found, type) and issubclass(found, MemoryError):
        return  # what is broadcast takes memory only where it is compiled
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected
        return
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), 1e-4, 1e-5)


@settings(max_examples=30)
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=2, max_size=2), arrays.filter(lambda s: len(s) == 2))
def test_indices_that_are_known_only_later_stay_inside(starts: list[int], shape: tuple[int, ...]) -> None:
    """Traced indices cannot be checked when the function is traced: they are clamped, or what is outside is dropped."""
    x = tnp.ones(shape)

    @tx.jit
    def function(x: Any, i: Any, j: Any) -> Any:
        size = tuple(min(n, 1) for n in shape)
        read = lax.dynamic_slice(x, (i, j), size)
        written = lax.dynamic_update_slice(x, read * 2, (i, j))
        return read, written, x.at[i, j].add(1.0) if 0 not in shape else x

    read, written, added = function(x, np.int32(starts[0]), np.int32(starts[1]))
    assert np.all(np.asarray(read) == 1.0)
    assert np.sum(np.asarray(written)) == x.size + read.size
    assert np.sum(np.asarray(added)) in (x.size, x.size + 1)


def test_the_pattern_of_a_line() -> None:
    with pytest.raises(ShapeError) as caught:
        tnp.ones(2) + tnp.ones(3)
    assert re.search(r"\n  at .*test_errors\.py:\d+ \(\w+\): tnp\.ones\(2\) \+ tnp\.ones\(3\)$", str(caught.value))

"""Values that leave a differentiated function as Python numbers: an error, where the derivative would be lost."""

from __future__ import annotations

import array
import cmath
import copy
import ctypes
import io
import logging
import math
import operator
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as tnp
from tinyxla.errors import ArgumentError, ConcretizationError, DifferentiationError, TracerArrayConversionError

Function = Callable[..., Any]


def pushed(f: Function) -> Any:
    return tx.jvp(f, (3.0,), (1.0,))[1]


def pulled(f: Function) -> Any:
    return tx.vjp(f, 3.0)[1](1.0)[0]


DERIVATIVES: dict[str, Function] = {
    "grad": lambda f: tx.grad(f)(3.0),
    "vjp": pulled,
    "jvp": pushed,
    "linearize": lambda f: tx.linearize(f, 3.0)[1](1.0),
}
COMPOSED: dict[str, Function] = {
    "jacfwd": lambda f: tx.jacfwd(f)(3.0),
    "jacrev": lambda f: tx.jacrev(f)(3.0),
    "hessian": lambda f: tx.hessian(f)(3.0),
    "grad of grad": lambda f: tx.grad(tx.grad(f))(3.0),
    "jvp of jvp": lambda f: tx.jvp(lambda x: tx.jvp(f, (x,), (1.0,))[1], (3.0,), (1.0,))[1],
    "grad of vmap": lambda f: tx.grad(lambda x: tx.vmap(f)(x).sum())(tnp.ones(2)),
    "vmap of grad": lambda f: tx.vmap(tx.grad(f))(tnp.ones(2)),
    "grad of checkpoint": lambda f: tx.grad(tx.checkpoint(f))(3.0),
    "grad of jit": lambda f: tx.grad(tx.jit(f))(3.0),
    "grad of cond": lambda f: tx.grad(lambda x: lax.cond(True, f, f, x))(3.0),
    "grad of custom_jvp of grad": lambda f: tx.grad(with_rule(tx.grad(f)))(3.0),
}


def with_rule(f: Function) -> Function:
    function = tx.custom_jvp(f)
    function.defjvp(lambda x, t: (f(*x), f(*x) * t[0]))
    return function


def stored(x: Any) -> Any:
    values = np.zeros(3)
    values[0] = x
    return values.sum()


def filled(x: Any) -> Any:
    values = np.zeros(3)
    values.fill(x)
    return values.sum()


CONSTANTS: dict[str, Function] = {
    "float": lambda x: x * float(x),
    "int": lambda x: x * int(x),
    "complex": lambda x: tnp.real(x * complex(x)),
    "item": lambda x: x * x.item(),
    "tolist": lambda x: x * x.tolist(),
    "math.sin": lambda x: math.sin(x) * x,
    "math.floor": lambda x: x * math.floor(x),
    "math.hypot": lambda x: x * math.hypot(x, x),
    "math.fsum": lambda x: x * math.fsum([x, x]),
    "math.isfinite": lambda x: x * math.isfinite(x),
    "cmath.exp": lambda x: x * cmath.exp(x).real,
    "operator.index": lambda x: x * operator.index(x),
    "range": lambda x: x * len(range(x)),
    "list index": lambda x: [x, x, x, x][x],
    "numpy.float64": lambda x: x * np.float64(x),
    "numpy.int64": lambda x: x * np.int64(x),
    "numpy.complex64": lambda x: tnp.real(x * np.complex64(x)),
    "numpy.asarray": lambda x: x * np.asarray(x),
    "numpy.array of two": lambda x: np.array([x, x]).sum() * x,
    "numpy.full": lambda x: np.full(3, x).sum() * x,
    "numpy.arange": lambda x: np.arange(x).sum() * x,
    "numpy.random": lambda x: x * np.random.default_rng(0).normal(x),
    "array.array": lambda x: x * array.array("d", [x])[0],
    "ctypes": lambda x: x * ctypes.c_double(x).value,
    "DLPack": lambda x: x * np.from_dlpack(x),
    "tobytes": lambda x: x * len(x.tobytes()),
    "pickle": lambda x: x * pickle.loads(pickle.dumps(x)),
    "numpy.save": lambda x: np.save(io.BytesIO(), x) or x,
    "numpy.savetxt": lambda x: np.savetxt(io.StringIO(), x) or x,
    "tinyxla.numpy.save": lambda x: tnp.save(io.BytesIO(), x) or x,
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
@pytest.mark.parametrize("function", CONSTANTS.values(), ids=CONSTANTS.keys())
def test_value_taken_as_a_constant_under_a_derivative_raises(function: Function, derivative: Function) -> None:
    with pytest.raises((ConcretizationError, ArgumentError)):  # floats are no index, whatever their value
        derivative(lambda x: function(x) * 1.0)


@pytest.mark.parametrize("derivative", COMPOSED.values(), ids=COMPOSED.keys())
@pytest.mark.parametrize("name", ["float", "item", "math.sin", "numpy.float64"])
def test_value_taken_as_a_constant_under_composed_transformations_raises(name: str, derivative: Function) -> None:
    with pytest.raises(ConcretizationError):
        derivative(CONSTANTS[name])


@pytest.mark.parametrize("write", [stored, filled, lambda x: struct.pack("f", x)], ids=["setitem", "fill", "struct"])
@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
def test_value_written_into_memory_under_a_derivative_raises(write: Function, derivative: Function) -> None:
    with pytest.raises((ValueError, struct.error)):  # NumPy and struct replace the error
        derivative(lambda x: x * write(x))


def test_compiled_program_called_under_a_derivative_raises() -> None:
    program = tx.jit(lambda x: x * x).lower(np.float32(3)).compile()
    with pytest.raises(ConcretizationError, match="A compiled program would take the value"):
        tx.grad(program)(np.float32(3))


def test_error_names_the_function_of_numpy_and_stop_gradient() -> None:
    with pytest.raises(ConcretizationError, match=r"derivative would be lost.*tinyxla.numpy.*lax.stop_gradient\(x\)"):
        tx.grad(lambda x: math.sin(x))(1.0)
    with pytest.raises(TracerArrayConversionError, match=r"lax.stop_gradient\(x\)"):
        tx.grad(lambda x: np.array([x, x]).sum())(1.0)
    with pytest.raises(DifferentiationError):
        tx.grad(lambda x: tx.pure_callback(math.sin, x, x))(1.0)


# --- what stays allowed -----------------------------------------------------------------------------------------------


def branched(x: Any) -> Any:
    while x < 10:
        x = x * 2
    return x if x and x != 0 and x < 13 else -x


ALLOWED: dict[str, tuple[Function, float]] = {
    "comparisons": (branched, 4.0),
    "sorted": (lambda x: sorted([x * x, x, -x])[2], 6.0),
    "max": (lambda x: max(x, 1.0) + min(x * x, 4.0), 1.0),
    "in": (lambda x: x if x in [1.0, 3.0] else 0 * x, 1.0),
    "f-string": (lambda x: x * len(f"{x:.3f}"), 5.0),
    "format": (lambda x: x * len("{:.1f} {}".format(x, x)), 7.0),  # noqa: UP032
    "percent": (lambda x: x * len("%.3f %d %s" % (x, x, x)), 11.0),  # noqa: UP031
    "str": (lambda x: x * len(str(x)), 3.0),
    "repr": (lambda x: x * bool(repr(x)), 1.0),
    "array2string": (lambda x: x * len(np.array2string(x)), 2.0),
    "stop_gradient": (lambda x: x * float(lax.stop_gradient(x)), 3.0),
    "stop_gradient and item": (lambda x: x * lax.stop_gradient(x).item(), 3.0),
    "integer": (lambda x: x * [1.0, 2.0, 4.0, 8.0][int(tnp.floor(x).astype(int))], 8.0),
    "range": (lambda x: x * len(range(x.astype(int))), 3.0),
    "round": (lambda x: x * round(x), 3.0),
    "divmod": (lambda x: divmod(x * x, 2.0)[1], 6.0),
    "abs": (lambda x: abs(-x), 1.0),
    "sum": (lambda x: sum([x, x * x]), 7.0),
    "math.prod": (lambda x: math.prod([x, x]), 6.0),
    "numpy.sin": (lambda x: np.sin(x), math.cos(3.0)),
    "numpy.linspace": (lambda x: np.linspace(0, x, 4).sum(), 2.0),
    "copy": (lambda x: copy.copy(x) * copy.deepcopy(x), 6.0),
    "size": (lambda x: x * x.nbytes * len((*x.strides, 1)), 4.0),
    "cond": (lambda x: lax.cond(x > 0, lambda y: y * y, lambda y: y, x), 6.0),
    "custom rule": (lambda x: looks_at_values(x), 9.0),
}


@tx.custom_jvp
def looks_at_values(x: Any) -> Any:
    return x * float(x)


looks_at_values.defjvp(lambda x, t: (looks_at_values(*x), t[0] * float(x[0]) ** 2))


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
@pytest.mark.parametrize("name", ALLOWED)
def test_decisions_and_text_under_a_derivative_keep_it(name: str, derivative: Function) -> None:
    function, expected = ALLOWED[name]
    assert float(derivative(function)) == pytest.approx(expected, rel=1e-6)


def test_logging_under_a_derivative_formats_the_value(caplog: pytest.LogCaptureFixture) -> None:
    def f(x: Any) -> Any:
        logging.getLogger("derivatives").warning("at %.2f, %d", x, x)
        return x * x

    assert float(tx.grad(f)(3.0)) == 6.0
    assert "at 3.00, 3" in caplog.text


# --- arguments on whose values a shape depends ------------------------------------------------------------------------


A = tnp.asarray([2.0, 1.0, 2.0])
BY_VALUES: dict[str, Function] = {
    "arange": lambda x: (tnp.arange(x, x + 2.5) ** 2).sum(),
    "arange with a step": lambda x: (tnp.arange(0.0, 4 * x, x) ** 2).sum(),
    "unique": lambda x: (tnp.unique(x * A) * tnp.arange(1.0, 3.0)).sum(),
    "unique rows": lambda x: (tnp.unique(x * A[:, None], axis=0) ** 2).sum(),
    "unique columns, filled": lambda x: (tnp.unique(x * A[None], axis=1, size=3, fill_value=7.0) ** 2).sum(),
    "union1d": lambda x: (tnp.union1d(x * A, A) ** 2).sum(),
    "setdiff1d": lambda x: (tnp.setdiff1d(x * A, A) ** 2).sum(),
    "compress": lambda x: (tnp.compress(tnp.maximum(x * A - 5, 0), x * A) ** 2).sum(),
    "trim_zeros": lambda x: (tnp.trim_zeros(x * tnp.asarray([0.0, 1.0, 0.0])) ** 2).sum(),
    "roots": lambda x: tnp.roots(tnp.stack([x * 0, x / x, -x, 0 * x])).real.sum() ** 2,
    "polydiv": lambda x: tnp.polydiv(x * A, A + x, trim_leading_zeros=True)[0].sum(),
    "pad with an array": lambda x: (tnp.pad(A, 1, constant_values=tnp.stack([x, x * x])) ** 2).sum(),
    "pad with a pair": lambda x: (tnp.pad(A, 1, constant_values=(x, x * x)) ** 2).sum(),
    "pad with a ramp": lambda x: (tnp.pad(A, 2, "linear_ramp", end_values=x) ** 2).sum(),
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
@pytest.mark.parametrize("name", BY_VALUES)
def test_shape_that_depends_on_values_keeps_the_derivative(name: str, derivative: Function) -> None:
    function = BY_VALUES[name]
    step = 1e-2
    expected = (float(function(3 + step)) - float(function(3 - step))) / (2 * step)
    assert float(derivative(function)) == pytest.approx(expected, rel=2e-3)
    assert float(pushed(function)) == pytest.approx(expected, rel=2e-3)

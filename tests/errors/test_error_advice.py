"""The advice in an error fits the case: what asks for a traced value, which argument is meant, which name exists."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    AxisError,
    ConcretizationError,
    UnknownNameError,
)
from tinyxla.tracing.core import GraphTracer

tnp = tx.numpy
A = tnp.ones((3, 3))
V = tnp.ones(3)
COUNT = tnp.asarray(3)


def sentence(error: BaseException) -> str:
    return str(error).partition("\n")[0]


# What is asked under jit, words that the advice has, and words that it does not have.
TRACED: dict[str, tuple[Callable[..., Any], Any, tuple[str, ...], tuple[str, ...]]] = {
    "unique": (tnp.unique, V, ("size=", "where"), ("cond",)),
    "nonzero": (tnp.nonzero, V, ("size=", "where"), ("cond",)),
    "argwhere": (tnp.argwhere, V, ("size=", "where"), ("cond",)),
    "flatnonzero": (tnp.flatnonzero, V, ("size=",), ("cond",)),
    "union1d": (lambda v: tnp.union1d(v, v), V, ("size=",), ("cond",)),
    "extract": (lambda v: tnp.extract(v > 0, v), V, ("size=", "where"), ("cond",)),
    "mask": (lambda v: v[v > 0], V, ("size=", "where(mask, x, y)"), ("cond",)),
    "zeros": (tnp.zeros, COUNT, ("static_argnums",), ("cond", "where")),
    "ones": (lambda n: tnp.ones((n, 2)), COUNT, ("static_argnums",), ("cond", "where")),
    "reshape": (lambda n: V.reshape(n, -1), COUNT, ("static_argnums", "x.shape"), ("cond",)),
    "arange": (tnp.arange, COUNT, ("static_argnums", "where"), ("cond",)),
    "range": (lambda n: list(range(n)), COUNT, ("static_argnums", "lax.fori_loop"), ("lax.cond",)),
    "axis": (lambda n: tnp.sum(A, n), COUNT, ("static_argnums",), ("cond",)),
    "slice": (lambda n: V[:n], COUNT, ("lax.dynamic_slice",), ("cond",)),
    "list": (lambda n: [1, 2][n], COUNT, ("tinyxla.numpy.asarray",), ("cond",)),
    "if": (lambda v: 1 if v[0] > 0 else 2, V, ("lax.cond", "where"), ("size=",)),
    "float": (lambda v: float(v[0]), V, ("the array itself", "astype"), ("cond",)),
    "math": (lambda v: math.sin(v[0]), V, ("functions of tinyxla.numpy", "`math`"), ("cond",)),
    "int": (lambda v: int(v[0]), V, ("astype(int)",), ("cond",)),
    "item": (lambda v: v[0].item(), V, ("item()", "return it"), ("cond",)),
    "format": (lambda v: f"{v[0]:.3f}", V, ("debug.print",), ("cond",)),
    "asarray": (np.asarray, V, ("functions of tinyxla.numpy", "pure_callback"), ("cond",)),
    "segment_sum": (lambda n: tx.ops.segment_sum(V, n[None] * tnp.arange(3)), COUNT, ("num_segments",), ("cond",)),
}


@pytest.mark.parametrize("name", TRACED)
def test_advice_for_traced_values_fits_what_asks(name: str) -> None:
    function, argument, parts, others = TRACED[name]
    with pytest.raises(ConcretizationError) as caught:
        tx.jit(lambda x: function(x))(argument)
    text = sentence(caught.value)
    advice = text.partition("are known")[2].partition(". ")[2]
    assert all(part in advice for part in parts), text
    assert not any(part in advice for part in others), text


def test_sizes_speak_of_static_arguments_first() -> None:
    with pytest.raises(ConcretizationError) as caught:
        tx.jit(tnp.zeros)(COUNT)
    assert (
        sentence(caught.value)
        .partition("the argument shape. ")[2]
        .startswith("If the value is fixed, mark the argument st")
    )


@pytest.mark.parametrize("transform", [tx.jit, tx.grad])
def test_writing_a_tracer_into_a_numpy_array_ends_with_the_reason(transform: Any) -> None:
    def writes(x: Any) -> Any:
        buffer = np.zeros(3)
        buffer[0] = x
        return tnp.sum(tnp.asarray(buffer))

    with pytest.raises(ValueError, match=r"cannot become part of a NumPy array.*x\.at\[k\]\.set\(y\)"):
        transform(writes)(1.0)


@pytest.mark.parametrize("name", ["concatenate", "stack", "hstack", "vstack", "dstack"])
def test_arrays_one_by_one_are_told_to_be_a_list(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"pass a list .*{name}\(\[a, b\]\)"):
        getattr(tnp, name)(A, A)


UPDATES: dict[str, tuple[Callable[[], Any], str]] = {
    "+": (lambda: A.at[0] + 1, r"\.add\(y\)"),
    "-": (lambda: A.at[0] - 1, r"\.subtract\(y\)"),
    "*": (lambda: 2 * A.at[0], r"\.multiply\(y\)"),
    "/": (lambda: A.at[0] / 2, r"\.divide\(y\)"),
    "**": (lambda: A.at[0] ** 2, r"\.power\(y\)"),
    "assignment": (lambda: A.at.__setitem__(0, 1), r"x\.at\[0\]\.set\(y\)"),
    "call": (lambda: A.at(0), r"x\.at\[index\]"),
    "method": (lambda: A.at[0].plus(1), "Did you mean 'add'"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_misuse_of_at_names_the_method(name: str) -> None:
    function, pattern = UPDATES[name]
    with pytest.raises((ArgumentError, UnknownNameError), match=pattern):
        function()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("nn.softmax", tx.nn.softmax), ("nn.log_softmax", tx.nn.log_softmax), ("nn.logsumexp", tx.nn.logsumexp),
        ("nn.standardize", tx.nn.standardize), ("std", tnp.std), ("var", tnp.var), ("median", tnp.median),
        ("ptp", tnp.ptp), ("nanmean", tnp.nanmean), ("nanstd", tnp.nanstd), ("nansum", tnp.nansum),
        ("nanmax", tnp.nanmax), ("nanmedian", tnp.nanmedian), ("count_nonzero", tnp.count_nonzero),
        ("cross", lambda x, axis: tnp.cross(x, x, axis=axis)), ("unique", lambda x, axis: tnp.unique(x, axis=axis)),
    ],
)  # fmt: skip
def test_errors_of_axes_name_the_function_that_was_called(name: str, function: Callable[..., Any]) -> None:
    for _ in range(2):
        with pytest.raises(AxisError) as caught:
            function(A, 2)
        assert str(caught.value).startswith(f"{name}: axis 2 is out of range"), caught.value


NAMES: dict[str, tuple[Callable[[], Any], str]] = {
    "like another": (lambda: tnp.conatenate, "Did you mean 'concatenate'"),
    "without underscores": (lambda: lax.whileloop, "Did you mean 'while_loop'"),
    "of the package": (lambda: tx.nump, "Did you mean 'numpy'"),
    "of nn": (lambda: tnp.softmax, "There is tinyxla.nn.softmax"),
    "of scipy": (lambda: tnp.erf, "There is tinyxla.scipy.special.erf"),
    "of lax": (lambda: tnp.while_loop, "There is tinyxla.lax.while_loop"),
    "of a submodule": (lambda: tnp.linalg.invs, "Did you mean 'inv'"),
}


@pytest.mark.parametrize("name", NAMES)
def test_unknown_names_say_which_may_be_meant(name: str) -> None:
    function, text = NAMES[name]
    with pytest.raises(AttributeError) as caught:
        function()
    assert isinstance(caught.value, UnknownNameError)
    assert text in str(caught.value)


def test_unknown_options_say_which_may_be_meant() -> None:
    with pytest.raises(AttributeValueError, match="Did you mean 'enable_x64'"):
        tx.config.update("enable_x46", True)
    with pytest.raises(AttributeError, match="Did you mean 'enable_x64'"):
        _ = tx.config.jax_enable_x46


def test_unknown_keywords_and_methods_say_which_may_be_meant() -> None:
    with pytest.raises(TypeError, match="Did you mean 'axis'"):
        A.sum(axes=0)
    with pytest.raises(TypeError, match="Did you mean 'axis'"):
        A.sum(dim=0)
    with pytest.raises(TypeError, match="Did you mean 'axis'"):
        tx.jit(lambda x: tnp.mean(x, axes=0))(A)
    with pytest.raises(AttributeError, match="Did you mean 'sort'"):
        tx.jit(lambda x: x.sorted())(A)
    with pytest.raises(AttributeError, match=r"There is tinyxla\.nn\.relu"):
        tx.jit(lambda x: x.relu())(A)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: tnp.sum(A, axiss=0), "axis"),
        (lambda: tnp.max(A, axes=0), "axis"),
        (lambda: tnp.all(A, keepdim=True), "keepdims"),
        (lambda: tnp.unique(A, return_count=True), "return_counts"),
        (lambda: tnp.take(A, 0, axiss=0), "axis"),
        (lambda: tnp.linalg.norm(A, odr=2), "ord"),
        (lambda: tx.jit(lambda x: x, static_argnum=0), "static_argnums"),
        (lambda: tx.grad(lambda x: x, argnum=0), "argnums"),
        (lambda: tx.vmap(lambda x: x, in_axs=0), "in_axes"),
        (lambda: tx.jacrev(lambda x: x, argnum=0), "argnums"),
        (lambda: tx.checkpoint(lambda x: x, polcy=None), "policy"),
    ],
)
def test_unknown_keywords_of_public_functions_say_which_may_be_meant(call: Callable[[], Any], meant: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument.*Did you mean '{meant}'"):
        call()


DISPLAYED = {
    "tx.numpy.zeros(3, dtypes=int)": "'dtypes'. Did you mean 'dtype'?",
    "tx.lax.conv_general_dilated(1, 2, window_stride=(1,), padding='SAME')": "Did you mean 'window_strides'?",
    "tx.random.normal(key, shapes=(2,))": "Did you mean 'shape'?",
    "tx.numpy.add(x, 2, wheres=True)": "Did you mean 'where'?",
    "tx.tree.map(abs, x, is_leafs=None)": "Did you mean 'is_leaf'?",
    "mine(dtypes=1)": "argument 'dtypes'" + ("\n" if sys.version_info < (3, 13) else ". Did you mean 'dtype'?\n"),
    "numpy.zeros(3, dtypes=1)": "argument 'dtypes'\n",
}


@pytest.mark.parametrize("call", DISPLAYED)
def test_displayed_errors_of_unknown_keywords_say_which_may_be_meant(call: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    start = "import numpy\nimport tinyxla as tx\nx = 1.0\nkey = 0\ndef mine(dtype=None):\n    pass\n"
    script.write_text(f"{start}{call}\n")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert DISPLAYED[call] in found.stderr


def test_keywords_of_functions_of_the_user_are_left_alone() -> None:
    def mean(x: Any, axis: int = 0) -> Any:
        return x

    def calls(x: Any) -> Any:
        return mean(x, axes=0)  # pyright: ignore[reportCallIssue]

    with pytest.raises(TypeError) as caught:
        tx.jit(calls)(A)
    assert "unexpected keyword" in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: hash(x), lambda x: x.nonsense, lambda x: x < "a", lambda x: {x: 1}, lambda x: x(),
        lambda x: x + object(), lambda x: tnp.asarray([x, "a"]), lambda x: tnp.sin({"a": x}), lambda x: "a" + x,
    ],
)  # fmt: skip
def test_no_message_names_internal_classes(function: Callable[[Any], Any]) -> None:
    for run in (function, tx.jit(function), tx.grad(function)):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            run(tnp.float32(1.0))
        text = str(caught.value)
        assert "ConcreteArray" not in text
        assert "GraphTracer" not in text


class _Layer:
    def __call__(self, size: int, *args: Any, **scales: Any) -> Any:
        return args[0]["w"] if args[0]["w"] > scales["by"] else size


def _of_constants() -> Any:
    return 1 if tnp.add(1, 1) > 0 else 2


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda: tx.jit(lambda x, y: x if x > y else y)(1, y=2), "on the arguments x and y"),
        (
            lambda: tx.jit(_Layer(), static_argnums=0)(3, {"w": 1.0}, by=2.0),
            "on the arguments args[0]['w'] and scales['by']",
        ),
        (lambda: tx.jit(lambda pair, y: 1 if pair[1] > 0 else y)((1, 2), 3), "on the argument pair[1]"),
        (lambda: tx.grad(tx.jit(lambda q: q if q > 0 else 2.0))(3.0), "on the argument q"),
    ],
    ids=["by name", "static", "in a tuple", "gradient"],
)
def test_values_that_are_wanted_name_the_arguments_they_depend_on(call: Any, cause: str) -> None:
    with pytest.raises(ConcretizationError) as caught:
        call()
    assert f"are known; it depends {cause}. " in str(caught.value)


def test_values_that_depend_on_no_argument_name_the_lines_that_compute_them() -> None:
    with pytest.raises(ConcretizationError, match=r"it is computed by 2 operations, at .*_of_constants") as caught:
        tx.jit(_of_constants)()
    assert "with ensure_compile_time_eval()" in str(caught.value)
    assert "static_argnums" not in str(caught.value)


def test_what_a_value_depends_on_is_looked_for_when_the_error_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs try whether a value is known, at each of many operations."""
    asked: list[str] = []
    found = GraphTracer._cause  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(GraphTracer, "_cause", lambda self: asked.append("") or found(self))
    errors: list[ConcretizationError] = []

    def function(x: Any) -> Any:
        with pytest.raises(ConcretizationError) as caught:
            bool(x)
        errors.append(caught.value)
        return x

    tx.jit(function)(1.0)
    assert not asked
    assert "it depends on the argument x" in str(errors[0])
    assert str(pickle.loads(pickle.dumps(errors[0]))) == str(errors[0])


def test_the_argument_of_which_a_traced_size_is_comes_first() -> None:
    with pytest.raises(ConcretizationError, match=r"^linspace: num: .* it depends on the argument n"):
        tx.jit(lambda n: tnp.linspace(0, 1, n))(3)

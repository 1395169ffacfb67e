"""`lax.scan`, `while_loop`, `fori_loop`, `cond` and `switch`, which are recorded as such in jaxprs.

Outside of `make_jaxpr` these are the functions of `tinyxla.lax`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.api.functions import ShapeDtypeStruct, arrays_of
from tinyxla.errors import ArgumentError
from tinyxla.jax.errors.varying_checks import alike_branches, keeping_axes
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr, jaxpr_as_fun
from tinyxla.jax.jaxprs.loops.loop_batching import BATCHERS
from tinyxla.jax.jaxprs.loops.loop_derivatives import DERIVATIVES
from tinyxla.jax.jaxprs.primitives.catalogue import primitives
from tinyxla.jax.jaxprs.staging import closed_jaxpr, restaged_jaxpr
from tinyxla.jax.jaxprs.traces.recording import LoopRegion, is_recording
from tinyxla.lax.loops.threading_references import branching, looping, scanning
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import varying_axes
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.custom import apply
from tinyxla.transforms.sharding_types import sharding_in_type

Function = Callable[..., Any]


def _structs(values: Sequence[Any]) -> list[ShapeDtypeStruct]:
    return [
        ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=sharding_in_type(x), vma=varying_axes(x))
        for x in values
    ]


def _row(x: Any) -> ShapeDtypeStruct:
    """The type of an element along the first axis."""
    layout = sharding_in_type(x)
    row = layout and layout.without_dimension(0, x.ndim)
    return ShapeDtypeStruct(x.shape[1:], x.dtype, sharding=row, vma=varying_axes(x))


def _of_avals(avals: Iterable[Any]) -> list[ShapeDtypeStruct]:
    """The types of a jaxpr's variables."""
    return [ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding_in_type(a), vma=a.vma) for a in avals]


def _settled(step: Function, carry: list[Any], *others: Any) -> tuple[ClosedJaxpr, list[bool], Any, list[Any]]:
    """The jaxpr of a loop's step, after the types of weakly typed values have become those that the step gives."""
    closed, weak, tree = closed_jaxpr(step, (_structs(carry), *others))
    changed = False
    for k, x in enumerate(carry):
        after = closed.out_avals[k] if k < len(closed.out_avals) else x
        if x.weak_type and (x.dtype != after.dtype or not weak[k]):
            carry[k] = lax.convert_element_type(x, after.dtype).with_weak_type(weak[k])
            changed = True
    return (*closed_jaxpr(step, (_structs(carry), *others)), carry) if changed else (closed, weak, tree, carry)


def _bound(name: str, params: dict[str, Any], values: Sequence[Any]) -> list[Any]:
    primitive = primitives[name]
    operands = [as_array(x) for x in values]
    key, batcher, rules = (primitive, id(params)), BATCHERS.get(name), DERIVATIVES[name]

    def function(*x: Any) -> list[Any]:
        return primitive.bind(*x, **params)

    rule = LoopRegion(name, key, len(operands), function, primitive, params, batcher, rules)
    return list(apply(rule, *operands))


@functools.wraps(lax.scan)
def scan(
    f: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> Any:
    f = keeping_axes("scan", f)
    return (_scan if is_recording() else lax.scan)(f, init, xs, length, reverse, unroll, _split_transpose)


@scanning
def _scan(f: Function, init: Any, xs: Any, length: int | None, reverse: bool, unroll: int | bool, _: bool) -> Any:
    carry, carry_tree = arrays_of(init, "lax.scan: init")
    rows, rows_tree = arrays_of(xs, "lax.scan: xs")
    count = rows[0].shape[0] if length is None and rows else length

    def step(carried: list[Any], given: list[Any]) -> list[Any]:
        found = f(pytrees.unflatten(carry_tree, carried), pytrees.unflatten(rows_tree, given))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ArgumentError(f"lax.scan: the function must give a pair (carry, y), but gives {found!r}.")
        after, y = found
        nonlocal ys_tree
        ys, ys_tree = arrays_of(y, "lax.scan: y")
        return [*arrays_of(after, "lax.scan: the carry")[0], *ys]

    ys_tree: Any = None
    elements = list(map(_row, rows))
    closed, weak, _, carry = _settled(step, carry, elements)
    params = {
        "reverse": reverse,
        "length": count,
        "jaxpr": ClosedJaxpr(_open(closed), []),
        "num_consts": len(closed.consts),
        "num_carry": len(carry),
        "unroll": unroll,
    }
    found = _bound("scan", params, [*closed.consts, *carry, *rows])
    found = [x.with_weak_type(w) for x, w in zip(found, weak, strict=True)]
    return pytrees.unflatten(carry_tree, found[: len(carry)]), pytrees.unflatten(ys_tree, found[len(carry) :])


@functools.wraps(lax.map)
def map_(f: Function, xs: Any, **options: Any) -> Any:
    if not is_recording() or any(x is not None for x in options.values()):
        return lax.map(f, xs, **options)
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


def _open(closed: ClosedJaxpr) -> Any:
    """The jaxpr with its constants as the first inputs."""
    function, count = closed.jaxpr, len(closed.consts)
    structs = _of_avals(v.aval for v in (*function.constvars, *function.invars))

    def flat(*values: Any) -> list[Any]:
        return jaxpr_as_fun(ClosedJaxpr(function, values[:count]))(*values[count:])

    return restaged_jaxpr(flat, tuple(structs), is_typed=True).jaxpr if count else function


@functools.wraps(lax.while_loop)
def while_loop(cond_fun: Function, body_fun: Function, init_val: Any, **options: Any) -> Any:
    body_fun = keeping_axes("while_loop", body_fun)
    if not is_recording() or options:
        return lax.while_loop(cond_fun, body_fun, init_val, **options)
    return _while_loop(cond_fun, body_fun, init_val)


@looping
def _while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    carry, tree = arrays_of(init_val, "lax.while_loop: init_val")

    def step(carried: list[Any]) -> list[Any]:
        return arrays_of(body_fun(pytrees.unflatten(tree, carried)), "lax.while_loop: the carry")[0]

    body, weak, _, carry = _settled(step, carry)
    test = closed_jaxpr(lambda carried: cond_fun(pytrees.unflatten(tree, carried)), (_structs(carry),))[0]
    params = {
        "cond_nconsts": len(test.consts),
        "cond_jaxpr": ClosedJaxpr(_open(test), []),
        "body_nconsts": len(body.consts),
        "body_jaxpr": ClosedJaxpr(_open(body), []),
    }
    found = _bound("while", params, [*test.consts, *body.consts, *carry])
    return pytrees.unflatten(tree, [x.with_weak_type(w) for x, w in zip(found, weak, strict=True)])


def _is_known(bound: Any) -> bool:
    return isinstance(bound, (int, np.integer, np.ndarray, ConcreteArray))


@functools.wraps(lax.fori_loop)
def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, **options: Any) -> Any:
    body_fun = keeping_axes("fori_loop", body_fun, 1)
    if not is_recording():
        return lax.fori_loop(lower, upper, body_fun, init_val, **options)
    if _is_known(lower) and _is_known(upper):
        first = int(lower)
        count = max(0, int(upper) - first)
        step = lambda carry, _: ((carry[0] + 1, body_fun(carry[0], carry[1])), None)  # noqa: E731
        return scan(step, (first, init_val), None, count)[0][1]
    start, stop = as_array(lower), as_array(upper)
    return while_loop(
        lambda carry: carry[0] < carry[1],
        lambda carry: (carry[0] + 1, carry[1], body_fun(carry[0], carry[2])),
        (start, stop, init_val),
    )[2]


@functools.wraps(lax.cond)
def cond(pred: Any, *args: Any, **options: Any) -> Any:
    functions = args[:2]
    if not is_recording() or options or not all(map(callable, functions)):
        if all(map(callable, functions)):
            args = (*alike_branches("cond", functions), *args[2:])
        return lax.cond(pred, *args, **options)
    index = lax.convert_element_type(as_array(pred) != 0 if as_array(pred).dtype != bool else pred, "int32")
    return _branches("lax.cond", index, alike_branches("cond", functions)[::-1], args[2:])


@functools.wraps(lax.switch)
def switch(index: Any, branches: Sequence[Function], *operands: Any, **options: Any) -> Any:
    branches = alike_branches("switch", branches) if isinstance(branches, tuple | list) else branches
    if not is_recording() or options or len(branches) == 1:
        return lax.switch(index, branches, *operands, **options)
    chosen = lax.convert_element_type(lax.clamp(0, index, len(branches) - 1), "int32")
    return _branches("lax.switch", chosen, branches, operands)


@branching
@branching
def _branches(what: str, index: Any, functions: Sequence[Function], operands: Sequence[Any]) -> Any:
    if varying_axes(index):  # then cotangents are summed outside of the branches
        return lax.switch(index, functions, *operands)
    values, tree = arrays_of(tuple(operands), f"{what}: operand ")
    structs = _structs(values)
    traced = [closed_jaxpr(lambda *x, f=f: f(*pytrees.unflatten(tree, x)), tuple(structs)) for f in functions]
    trees = {t for _, _, t in traced}
    shapes = {tuple((a.shape, a.dtype) for a in closed.out_avals) for closed, _, _ in traced}
    if len(trees) > 1 or len(shapes) > 1:  # the library's own function says what differs
        return lax.switch(index, functions, *operands)
    captured = [x for closed, _, _ in traced for x in closed.consts]
    constants = _structs([as_array(x) for x in captured])
    jaxprs: list[ClosedJaxpr] = []
    start = 0
    for closed, _, _ in traced:
        stop = start + len(closed.consts)

        def flat(*x: Any, own: Any = closed.jaxpr, span: slice = slice(start, stop)) -> list[Any]:
            return jaxpr_as_fun(ClosedJaxpr(own, x[span]))(*x[len(captured) :])

        jaxprs.append(restaged_jaxpr(flat, (*constants, *structs), is_typed=True) if captured else closed)
        start = stop
    found = _bound("cond", {"branches": tuple(jaxprs)}, [index, *captured, *values])
    weak = [all(w) for w in zip(*(weak for _, weak, _ in traced), strict=True)]
    return pytrees.unflatten(traced[0][2], [x.with_weak_type(w) for x, w in zip(found, weak, strict=True)])

"""Derivatives of loops and branches that jaxprs show, in JAX's form.

Forward mode: a `scan`, `while` or `cond` of the body's JVP. Reverse mode: a `scan` that also stacks what the way back
needs of each step, and a `scan` in the other direction; a `cond` that also gives what the way back of the chosen branch
needs, and a `cond` of the ways back. The way back through a `while` is that of its ops.

Operands and results stand in JAX's order: constants, carries, scanned arrays, and each of these before its tangents.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.hlo import Computation
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr
from tinyxla.jax.jaxprs.staging import restaged_jaxpr
from tinyxla.jax.jaxprs.traces.recording import Derivatives, Region
from tinyxla.ops import movement
from tinyxla.shapes import Shape
from tinyxla.transforms.calls import Split, split_reverse
from tinyxla.transforms.computations import Mask, chosen, effects, flowing, forward, run, spread, subgraph
from tinyxla.transforms.custom import Pullback, Values
from tinyxla.transforms.reverse import PartialPullback, zeros_like

Results = tuple[Any, ...]
Forward = tuple[Results, Results]  # results and their tangents
Reverse = tuple[Results, Pullback | None] | None


def _struct(shape: Any, count: int | None = None) -> ShapeDtypeStruct:
    """The type of an array of a shape, or of so many of them."""
    sizes = shape.dimensions if count is None else (count, *shape.dimensions)
    return ShapeDtypeStruct(sizes, shape.dtype)


def _recorded(function: Callable[..., Any], shapes: Sequence[Any]) -> ClosedJaxpr:
    return restaged_jaxpr(function, tuple(map(_struct, shapes)))


def _opened(closed: ClosedJaxpr) -> Computation:
    """The computation of a jaxpr, of its constants and then its inputs."""
    made, count = closed.jaxpr.computation, len(closed.jaxpr.invars)
    assert made is not None
    inputs = [*made.parameters[count:], *made.parameters[:count]]
    return subgraph(made.name, inputs, made.outputs, effects=effects(made))


def _zeros(shape: Any) -> Any:
    return movement.full(0, shape.dtype, shape.dimensions)


def _or_zeros(tangent: Any, value: Any) -> Any:
    return zeros_like(value) if tangent is None else tangent


def _moving(body: Computation, present: Sequence[bool], start: int, count: int) -> tuple[list[bool], Mask]:
    """Which operands of a loop's body have tangents, where those carried, `count` from `start` on, have them if the
    results have; and which results."""
    present = list(present)
    while True:
        carried = present[start : start + count]
        wanted = (*carried, *(False for _ in body.outputs[count:]))
        moving = tuple(map(operator.or_, flowing(body, tuple(present)), wanted))
        if list(moving[:count]) == carried:
            return present, moving
        present[start : start + count] = moving[:count]


def _interleaved(groups: Sequence[tuple[int, int]], mask: Sequence[bool]) -> list[int]:
    """The order in which each group of operands, from one number to another, stands before its tangents: these are
    numbered after all operands."""
    places = iter(range(len(mask), len(mask) + sum(mask)))
    tangent = [next(places) if m else -1 for m in mask]
    order: list[int] = []
    for first, end in groups:
        order += [*range(first, end), *(k for k in tangent[first:end] if k >= 0)]
    return order


def _pushed(body: Computation, present: Sequence[bool], moving: Mask, inputs: Any, outputs: Any) -> ClosedJaxpr:
    """The JVP of a loop's body, with its operands and results in groups."""
    made = forward(body, tuple(present), moving)[0]
    order = _interleaved(inputs, present)

    def function(*values: Any) -> list[Any]:
        given = dict(zip(order, values, strict=True))
        found = run(made, [given[k] for k in range(len(values))])
        return [found[k] for k in _interleaved(outputs, moving)]

    return _recorded(function, [made.parameter_shapes[k] for k in order])


def _split_results(found: Sequence[Any], groups: Any, moving: Mask) -> tuple[Results, Results]:
    """Results in groups as all of them, and all tangents."""
    order = dict(zip(_interleaved(groups, moving), found, strict=True))
    values = [order[k] for k in range(len(order))]
    return tuple(values[: len(moving)]), tuple(spread(values[len(moving) :], moving))


# --- scan -------------------------------------------------------------------------------------------------------------


class _Scan(NamedTuple):
    """The parts of a scan: its body, of constants, carries and scanned rows; and how many of these there are."""

    body: Computation
    constants: int
    carry: int
    extra: list[Any]  # constants of the body's own, which come first

    @classmethod
    def of(cls, params: dict[str, Any]) -> _Scan:
        extra = list(params["jaxpr"].consts)
        return cls(_opened(params["jaxpr"]), params["num_consts"] + len(extra), params["num_carry"], extra)

    @property
    def start(self) -> int:
        """Where scanned operands begin."""
        return self.constants + self.carry

    def groups(self) -> list[tuple[int, int]]:
        count = len(self.body.parameters)
        return [(0, self.constants), (self.constants, self.start), (self.start, count)]

    def result_groups(self) -> list[tuple[int, int]]:
        return [(0, self.carry), (self.carry, len(self.body.outputs))]


def _push_scan(made: Region, tangents: Values, values: Values) -> Forward:
    parts = _Scan.of(made.params)
    values, tangents = [*parts.extra, *values], [*(None for _ in parts.extra), *tangents]
    present, moving = _moving(parts.body, [t is not None for t in tangents], parts.constants, parts.carry)
    jaxpr = _pushed(parts.body, present, moving, parts.groups(), parts.result_groups())
    whole = [_or_zeros(t, x) if m else None for t, x, m in zip(tangents, values, present, strict=True)]
    given = [*values, *chosen(whole, present)]
    counts = {
        "num_consts": parts.constants + sum(present[: parts.constants]),
        "num_carry": parts.carry + sum(present[parts.constants : parts.start]),
    }
    operands = [given[k] for k in _interleaved(parts.groups(), present)]
    return _split_results(
        made.applied(made.params | counts | {"jaxpr": jaxpr}, operands), parts.result_groups(), moving
    )


def _pull_scan(made: Region, wanted: Mask, values: Values) -> Reverse:
    parts = _Scan.of(made.params)
    values = [*parts.extra, *values]
    asked = [*(False for _ in parts.extra), *wanted]
    active, moving = _moving(parts.body, asked, parts.constants, parts.carry)
    if not any(moving):
        return made.applied(made.params, values[len(parts.extra) :]), None
    split = split_reverse(parts.body, tuple(active), None, moving)
    way_back = _ScanBack(parts, split, active, moving)
    outputs = made.applied(made.params | {"jaxpr": way_back.there(), "num_consts": parts.constants}, values)
    count = len(parts.body.outputs)

    def pullback(cotangents: Any) -> list[Any]:
        seeds = [
            _or_zeros(g, x) for g, x in zip(chosen(cotangents, moving), chosen(outputs[:count], moving), strict=True)
        ]
        operands, counts, jaxpr = way_back.back(values, outputs[count:], seeds)
        found = made.applied(made.params | counts | {"jaxpr": jaxpr, "reverse": not made.params["reverse"]}, operands)
        reached = dict(zip(way_back.reached, found, strict=True))
        return [reached.get(k) if asked[k] else None for k in range(len(parts.extra), len(values))]

    return outputs[:count], pullback


class _ScanBack:
    """The two scans of the gradient of one: which operands are what in them."""

    def __init__(self, parts: _Scan, split: Split, active: Sequence[bool], moving: Mask) -> None:
        self.parts, self.split, self.moving = parts, split, moving
        self.active = [k for k, is_active in enumerate(active) if is_active]
        self.flowing = chosen(self.active, split.flows)
        self.residuals = list(dict.fromkeys(k for k in split.residuals if k is not None))
        self.kept_carries = [k for k in self.residuals if parts.constants <= k < parts.start]
        # Operands by the order of their cotangents among the results: constants, carries, scanned.
        carried = [k for k in self.active if parts.constants <= k < parts.start]
        self.summed = [k for k in self.flowing if k < parts.constants]
        self.reached = [*self.summed, *carried, *(k for k in self.flowing if k >= parts.start)]
        self.carried = carried

    def there(self) -> ClosedJaxpr:
        """The body that also gives what is computed for the way back, and the carries that it needs."""
        made = self.split.there
        return _recorded(
            lambda *x: [*run(made, x), *(x[k] for k in self.kept_carries)], self.parts.body.parameter_shapes
        )

    def back(
        self, values: Sequence[Any], stacked: Sequence[Any], seeds: Sequence[Any]
    ) -> tuple[list[Any], dict[str, int], ClosedJaxpr]:
        """The operands of the scan back, its counts and its body."""
        parts, shapes = self.parts, self.parts.body.parameter_shapes
        constants = [k for k in self.residuals if k < parts.constants]
        rows = [k for k in self.residuals if k >= parts.start]
        count = sum(self.moving[: parts.carry])
        computed = self.split.there.root.operands[len(parts.body.outputs) :]
        zeros = [_zeros(shapes[k]) for k in self.summed]
        operands = [
            *(values[k] for k in constants), *zeros, *seeds[:count],
            *seeds[count:], *stacked, *(values[k] for k in rows),
        ]  # fmt: skip
        outputs = chosen([x.shape for x in parts.body.outputs], self.moving)
        kinds = [
            *(shapes[k] for k in constants), *(shapes[k] for k in self.summed), *outputs,
            *(x.shape for x in computed), *(shapes[k] for k in self.kept_carries), *(shapes[k] for k in rows),
        ]  # fmt: skip

        def step(*given: Any) -> list[Any]:
            inputs = iter(given)
            known = {k: next(inputs) for k in constants}
            sums = [next(inputs) for _ in self.summed]
            cotangents = [next(inputs) for _ in outputs]
            made = [next(inputs) for _ in computed]
            known |= {k: next(inputs) for k in (*self.kept_carries, *rows)}
            fresh = iter(made)
            residuals = [next(fresh) if k is None else known[k] for k in self.split.residuals]
            found = dict(zip(self.flowing, run(self.split.back, [*residuals, *cotangents]), strict=True))
            carries = [found[k] if k in found else _zeros(shapes[k]) for k in self.carried]
            after = [total + found[k] for total, k in zip(sums, self.summed, strict=True)]
            return [*after, *carries, *(found[k] for k in self.reached[len(after) + len(carries) :])]

        counts = {"num_consts": len(constants), "num_carry": len(zeros) + count}
        return operands, counts, _recorded(step, kinds)


# --- while ------------------------------------------------------------------------------------------------------------


def _push_while(made: Region, tangents: Values, values: Values) -> Forward:
    params = made.params
    count, own = params["cond_nconsts"], list(params["body_jaxpr"].consts)
    tests, given = values[:count], [*own, *values[count:]]
    moves = [*(None for _ in own), *tangents[count:]]
    constants, body = params["body_nconsts"] + len(own), _opened(params["body_jaxpr"])
    carry = len(body.outputs)
    present, moving = _moving(body, [t is not None for t in moves], constants, carry)
    groups = [(0, constants), (constants, constants + carry)]
    jaxpr = _pushed(body, present, moving, groups, [(0, carry)])
    test, own_test = _opened(params["cond_jaxpr"]), list(params["cond_jaxpr"].consts)
    shapes = [*test.parameter_shapes, *chosen(body.parameter_shapes[constants:], present[constants:])]
    needed = len(test.parameters)
    condition = _recorded(lambda *x: run(test, x[:needed]), shapes)
    whole = [_or_zeros(t, x) if m else None for t, x, m in zip(moves, given, present, strict=True)]
    both = [*given, *chosen(whole, present)]
    operands = [*own_test, *tests, *(both[k] for k in _interleaved(groups, present))]
    changed = {
        "cond_jaxpr": condition,
        "cond_nconsts": count + len(own_test),
        "body_jaxpr": jaxpr,
        "body_nconsts": constants + sum(present[:constants]),
    }
    return _split_results(made.applied(params | changed, operands), [(0, carry)], moving)


def _pull_while(made: Region, wanted: Mask, values: Values) -> Reverse:
    constants = made.params["cond_nconsts"]
    own = [False for _ in made.params["body_jaxpr"].consts]
    body = _opened(made.params["body_jaxpr"])
    start = len(own) + made.params["body_nconsts"]
    _, moving = _moving(body, [*own, *wanted[constants:]], start, len(body.outputs))
    return None if any(moving) else (made.applied(made.params, values), None)


# --- cond -------------------------------------------------------------------------------------------------------------


class _Branches(NamedTuple):
    """The branches of a cond as computations of one list of operands: constants of all, and then the others."""

    computations: list[Computation]
    extra: list[Any]

    @classmethod
    def of(cls, params: dict[str, Any]) -> _Branches:
        branches: Sequence[ClosedJaxpr] = params["branches"]
        extra = [x for b in branches for x in b.consts]
        if not extra:
            return cls([_opened(b) for b in branches], [])
        shapes = [*map(Shape.of, extra), *_opened(branches[0]).parameter_shapes[len(branches[0].consts) :]]
        found: list[Computation] = []
        start = 0
        for b in branches:
            end = start + len(b.consts)
            made = _opened(b)
            whole = _recorded(lambda *x, m=made, s=start, e=end: run(m, [*x[s:e], *x[len(extra) :]]), shapes)
            found.append(_opened(whole))
            start = end
        return cls(found, extra)

    def moving(self, present: Sequence[bool]) -> Mask:
        """Which results of any branch have tangents."""
        found = [flowing(b, tuple(present)) for b in self.computations]
        return tuple(any(flows) for flows in zip(*found, strict=True))


def _push_cond(made: Region, tangents: Values, values: Values) -> Forward:
    parts = _Branches.of(made.params)
    given, moves = [*parts.extra, *values[1:]], [*(None for _ in parts.extra), *tangents[1:]]
    present = [t is not None for t in moves]
    moving = parts.moving(present)
    pushed = [forward(b, tuple(present), moving)[0] for b in parts.computations]
    branches = tuple(_recorded(lambda *x, b=b: run(b, x), b.parameter_shapes) for b in pushed)
    found = made.applied(made.params | {"branches": branches}, [values[0], *given, *chosen(moves, present)])
    return _split_results(found, [(0, len(moving))], moving)


def _pull_cond(made: Region, wanted: Mask, values: Values) -> Reverse:
    parts = _Branches.of(made.params)
    given, asked = [*parts.extra, *values[1:]], [*(False for _ in parts.extra), *wanted[1:]]
    moving = parts.moving(asked)
    if not any(moving):
        return made.applied(made.params, values), None
    splits = [split_reverse(b, tuple(asked), None, moving) for b in parts.computations]
    count, shapes = len(moving), parts.computations[0].parameter_shapes
    computed = [[x.shape for x in s.there.root.operands[count:]] for s in splits]
    slots = [shape for found in computed for shape in found]
    starts = [sum(map(len, computed[:k])) for k in range(len(splits))]

    def there(split: Split, start: int) -> ClosedJaxpr:
        def function(*x: Any) -> list[Any]:
            found = run(split.there, x)
            own = dict(enumerate(found[count:], start))
            return [*found[:count], *(own[k] if k in own else _zeros(s) for k, s in enumerate(slots))]

        return _recorded(function, shapes)

    branches = tuple(map(there, splits, starts))
    outputs = made.applied(made.params | {"branches": branches}, [values[0], *given])
    active = [k for k, is_asked in enumerate(asked) if is_asked]
    reached = [k for n, k in enumerate(active) if any(s.flows[n] for s in splits)]
    read = list(dict.fromkeys(k for s in splits for k in s.residuals if k is not None))
    seed_shapes = chosen([x.shape for x in parts.computations[0].outputs], moving)

    def back(split: Split, start: int) -> ClosedJaxpr:
        def function(*x: Any) -> list[Any]:
            fresh = iter(x[start : len(slots)])
            known = dict(zip(read, x[len(slots) :], strict=False))
            residuals = [next(fresh) if k is None else known[k] for k in split.residuals]
            seeds = x[len(slots) + len(read) :]
            found = dict(zip(chosen(active, split.flows), run(split.back, [*residuals, *seeds]), strict=True))
            return [found[k] if k in found else _zeros(shapes[k]) for k in reached]

        return _recorded(function, [*slots, *(shapes[k] for k in read), *seed_shapes])

    def pullback(cotangents: Any) -> list[Any]:
        seeds = map(_or_zeros, chosen(cotangents, moving), chosen(outputs[:count], moving))
        operands = [values[0], *outputs[count:], *(given[k] for k in read), *seeds]
        found = made.applied(made.params | {"branches": tuple(map(back, splits, starts))}, operands)
        ways = dict(zip(reached, found, strict=True))
        return [None, *(ways.get(k) for k in range(len(parts.extra), len(given)))]

    return outputs[:count], PartialPullback(pullback, moving)


DERIVATIVES = {
    "scan": Derivatives(_push_scan, _pull_scan),
    "while": Derivatives(_push_while, _pull_while),
    "cond": Derivatives(_push_cond, _pull_cond),
}

"""Computations as jaxprs: instruction by instruction, under JAX's names of primitives and parameters.

An op that JAX does not have is a primitive of its own name, with its attributes as parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla import lax
from tinyxla.hlo import Computation, Instruction, own_axes
from tinyxla.jax.jaxprs.array_types import ArrayType, Types, types_of_parts
from tinyxla.jax.jaxprs.avals import of_shape
from tinyxla.jax.jaxprs.jaxpr import (
    Atom,
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    no_effects,
    side_effects_of,
)
from tinyxla.jax.jaxprs.jit_shardings import with_jit_shardings
from tinyxla.jax.jaxprs.primitives.catalogue import BINARY, BITWISE, UNARY, LaxPrimitive, primitives
from tinyxla.jax.jaxprs.primitives.op_translations import (
    OP_TRANSLATIONS,
    RESULT_ORDERS,
    Translated,
    argument_reduction,
    combination,
    is_argument_reduction,
    precision_of,
    reduce_window,
    starts_with,
    window_params,
)
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive, PrimitiveRule
from tinyxla.jax.jaxprs.traces.recording import Region
from tinyxla.jax.tracing.frontend_attributes import context_of
from tinyxla.jax.tracing.source_info import source_info
from tinyxla.ops import Op, calls, elementwise, movement
from tinyxla.ops.barrier import opt_barrier
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.shapes import Shape, TupleShape
from tinyxla.text.op_names import function_name
from tinyxla.tracing.array import wrap
from tinyxla.tracing.meshes import context
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec, spec_of, sums_of
from tinyxla.transforms.calls import call
from tinyxla.transforms.computations import effects, subgraph
from tinyxla.transforms.custom import CustomJvp, CustomVjp, CustomVmap, Implicit, LinearCall

Params = dict[str, Any]


def of_computation(
    made: Computation,
    count: int,
    name: str,
    weak: Sequence[bool] = (),
    weak_inputs: Sequence[bool] = (),
    types: Types | None = None,
) -> tuple[Jaxpr, list[Any]]:
    """The jaxpr of a computation, whose first `count` parameters are its inputs and the others constants. Arrays in the
    computation become further constants, and their values are given. `weak` and `weak_inputs` say which results and
    inputs are weakly typed, `types` how parameters lie on a mesh."""
    arrays = [x for x in made.instructions if x.op is movement.constant and x.array_shape.rank]
    if arrays:
        made = subgraph(made.name, [*made.parameters, *arrays], made.outputs, effects=effects(made))
    translation = Translation(made, types)
    inputs = [translation.variable(p) for p in made.parameters]
    for v, is_weak in zip(inputs, weak_inputs, strict=False):
        v.aval = v.aval.update(weak_type=is_weak)
    outputs = translation.outputs(weak)
    equations = with_jit_shardings(translation.equations, outputs)
    side_effects = side_effects_of(made)
    info = DebugInfo("jit", name)
    jaxpr = Jaxpr(inputs[count:], inputs[:count], outputs, equations, side_effects, info, computation=made)
    return jaxpr, [wrap(x.attributes.literal.value) for x in arrays]


def closed_computation(made: Computation, types: Types | None = None) -> ClosedJaxpr:
    """The jaxpr of a computation of its parameters alone: the same one for the same computation, as programs keep what
    they make of a jaxpr."""
    if types is not None:
        return _typed_computation(made, types)
    if made.translated is None:
        made.translated = ClosedJaxpr(*of_computation(made, len(made.parameters), made.name))
    return made.translated


@functools.lru_cache(1024)
def _typed_computation(made: Computation, types: Types) -> ClosedJaxpr:
    return ClosedJaxpr(*of_computation(made, len(made.parameters), made.name, types=types))


@functools.cache
def _of_op(op: Op, multiple_results: bool, name: str) -> LaxPrimitive:
    """The primitive that an op is which JAX does not have, under a name."""

    def function(*args: Any, **params: Any) -> Any:
        found = op(*map(as_array, args), **params)
        return list(found) if multiple_results else found

    return LaxPrimitive(name, function, multiple_results)


def _unknown(x: Instruction) -> LaxPrimitive:
    """The primitive of an instruction whose op JAX does not have."""
    name = {"convolution": "conv_general_dilated"}.get(x.op.name, x.op.name.replace("-", "_"))
    if name == "callback":
        a = x.attributes
        name = "debug_callback" if a.is_debug else "io_callback" if a.custom_call_has_side_effect else "pure_callback"
    return _of_op(x.op, isinstance(x.shape, TupleShape), name)


def is_known(op: Op) -> bool:
    """Whether JAX has a primitive for an op, at least for some attributes."""
    return op.name in _ELEMENTWISE or op.name in _TRANSLATIONS or op.name in _OF_COMPUTATIONS


_DROPPED = ("iota", "bitcast_convert_type")  # primitives whose equations are left out where nothing uses the result


class Translation:
    """Translates a computation into equations, in order."""

    def __init__(self, computation: Computation, types: Types | None = None) -> None:
        self.computation = computation
        self.types = types
        self.known: dict[Instruction, list[ArrayType]] = {}  # the types of the arrays of results
        self.equations: list[JaxprEqn] = []
        self._atoms: dict[Instruction, Any] = {}  # an atom, a list of those of a tuple, or a constant to be broadcast
        if types is not None:
            given = types.of_parameters([p.array_shape for p in computation.parameters])
            self.known = {p: [t] for p, t in zip(computation.parameters, given, strict=True)}
        for p in computation.parameters:
            (aval,) = self._avals(p)
            self._atoms[p] = Var(aval)
        for x in computation.instructions:
            if x not in self._atoms:
                if types is not None:
                    self.known[x] = types.of_results(x, [self.known[o] for o in x.operands])
                self._translate(x)

    def _avals(self, x: Instruction) -> list[Any]:
        """The abstract values of an instruction's result; the shapes of what is no array."""
        shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
        if self.types is None or not all(isinstance(s, Shape) for s in shapes):
            return [of_shape(s) if isinstance(s, Shape) else s for s in shapes]
        pairs = zip(shapes, self.known[x], strict=True)
        return [self.types.aval(s, t) for s, t in pairs if isinstance(s, Shape)]

    def types_inside(self, operands: Sequence[Instruction]) -> Types | None:
        """The types of the parameters of a computation that is applied to these operands."""
        return self.types and self.types.inside([t for o in operands for t in self.known[o]])

    def types_of_parts(self, x: Instruction) -> Types | None:
        """The types of the parameters of the function of an instruction `shard-map`."""
        whole = [ArrayType(frozenset(), ((),) * o.array_shape.rank) for o in x.operands]
        return types_of_parts(x, self.types, whole if self.types is None else [self.known[o][0] for o in x.operands])

    def variable(self, parameter: Instruction) -> Var:
        """That of a parameter."""
        return self._atoms[parameter]

    def outputs(self, weak: Sequence[bool]) -> list[Atom]:
        """The results."""
        found = [self._atom(x) for x in self.computation.outputs]
        used = {v for eqn in self.equations for v in eqn.invars if isinstance(v, Var)}.union(found)
        self.equations = [e for e in self.equations if e.primitive.name not in _DROPPED or used.intersection(e.outvars)]
        for eqn in self.equations:
            eqn.outvars = [v if v in used else DropVar(v.aval) for v in eqn.outvars]
        for k, (atom, is_weak) in enumerate(zip(found, weak, strict=False)):
            if is_weak and isinstance(atom, Var):
                atom.aval = atom.aval.update(weak_type=True)
            elif is_weak and isinstance(atom, Literal):
                found[k] = Literal(atom.val, atom.aval.update(weak_type=True))
        return found

    def _atom(self, x: Instruction) -> Atom:
        found = self._atoms[x]
        if isinstance(found, _Splat):
            params = {"shape": x.array_shape.dimensions, "broadcast_dimensions": (), "sharding": None}
            found = self._atoms[x] = self._emit(primitives["broadcast_in_dim"], [found.scalar], params, x)[0]
        return found

    def _scalar_or_atom(self, x: Instruction) -> Atom:
        """An operand of an element-wise primitive, which may be a scalar."""
        found = self._atoms[x]
        return found.scalar if isinstance(found, _Splat) else found

    def _emit(self, primitive: Primitive, invars: Sequence[Atom], params: Params, x: Instruction) -> list[Any]:
        outvars = list(map(Var, self._avals(x)))
        effects = side_effects_of(x)
        everything = range(len(outvars))
        order = everything if x.op is call else RESULT_ORDERS.get(primitive.name, everything)
        context = context_of(x.source)
        results = [outvars[k] for k in order]
        equation = JaxprEqn(invars, results, primitive, params, effects, source_info(x.source), context)
        self.equations.append(equation)
        return outvars

    def _translate(self, x: Instruction) -> None:
        if x.op is movement.constant:
            value = x.attributes.literal.value
            self._atoms[x] = Literal(value[()], of_shape(x.array_shape))
        elif x.op is calls.tuple_:
            self._atoms[x] = [self._atom(o) for o in x.operands]
        elif x.op is calls.get_tuple_element:
            self._take(x)
        elif x.op is opt_barrier and self._is_before_checkpoint(x):
            self._atoms[x] = [self._atom(o) for o in x.operands]
        elif x.op is movement.broadcast and self._is_scalar(x.operands[0]):
            repeated = self._atoms[x.operands[0]]
            self._atoms[x] = repeated if isinstance(repeated, _Splat) else _Splat(repeated)
        else:
            primitive, params, operands = self._primitive(x)
            outvars = self._emit(primitive, operands, params, x)
            self._atoms[x] = outvars if isinstance(x.shape, TupleShape) else outvars[0]

    def _is_before_checkpoint(self, x: Instruction) -> bool:
        """Whether a barrier is that of the way back of a checkpoint, which jaxprs have as `prevent_cse`."""
        users = [y for taken in self._users[x] for y in self._users[taken]]
        return bool(users) and all(
            y.op is call and y.attributes.checkpoint and y.attributes.checkpoint.is_back for y in users
        )

    def _is_scalar(self, x: Instruction) -> bool:
        """Whether an array is a scalar, or repeats one."""
        return not x.array_shape.rank or isinstance(self._atoms[x], _Splat)

    def _take(self, x: Instruction) -> None:
        group, index = self._atoms[x.operands[0]], x.attributes.index
        self._atoms[x] = group[index]

    def _primitive(self, x: Instruction) -> tuple[Primitive, Params, list[Atom]]:
        name = x.op.name
        if name in _ELEMENTWISE:
            full = any(not isinstance(self._atoms[o], (_Splat, Literal)) for o in x.operands)
            read = self._scalar_or_atom if full and len(x.operands) > 1 else self._atom
            operands = [read(o) for o in x.operands]
            primitive, params = _ELEMENTWISE[name](x)
            return primitive, params, operands
        operands = [self._atom(o) for o in x.operands]
        if name == "bitcast-convert" and x.operands[0].op is x.op and x.operands[0].operands[0].shape == x.shape:
            return primitives["stop_gradient"], {}, [self._atom(x.operands[0].operands[0])]
        if name in ("gather", "scatter") and len(operands) <= 3:
            operands[1] = self._with_vector_axis(x, operands[1])
        if is_argument_reduction(x) and self._is_index_alone(x):
            return argument_reduction(x, operands)
        found = None
        if name in _OF_COMPUTATIONS:
            found = _OF_COMPUTATIONS[name](self, x, operands)
        elif name in _TRANSLATIONS:
            found = _TRANSLATIONS[name](x, operands)
        if found is not None:
            return found
        return _unknown(x), x.attributes._asdict(), operands

    def _is_index_alone(self, x: Instruction) -> bool:
        """Whether, of the value and the index of an extremum, only the index is used."""
        root = self.computation.root
        taken = [y for y in self._users[x] if y is root or self._users[y]]
        return x is not root and all(y.op is calls.get_tuple_element and y.attributes.index == 1 for y in taken)

    @functools.cached_property
    def _users(self) -> dict[Instruction, list[Instruction]]:
        return self.computation.users()

    def _with_vector_axis(self, x: Instruction, indices: Atom) -> Atom:
        """The indices of a gather or scatter with an axis for index vectors, which those of one number may lack."""
        shape = x.operands[1].array_shape
        if x.attributes.index_vector_dim != shape.rank:
            return indices
        longer = shape.with_dimensions((*shape.dimensions, 1))
        params = {"shape": longer.dimensions, "broadcast_dimensions": tuple(range(shape.rank)), "sharding": None}
        result = Var(of_shape(longer))
        source = source_info(x.source)
        self.equations.append(JaxprEqn([indices], [result], primitives["broadcast_in_dim"], params, no_effects, source))
        return result


class _Splat:
    """A scalar that is repeated to a shape, which element-wise primitives take as it is."""

    def __init__(self, scalar: Atom) -> None:
        self.scalar = scalar


def _named(name: str, **params: Any) -> Callable[[Instruction], tuple[Primitive, Params]]:
    return lambda x: (primitives[name], dict(params))


def _comparison(x: Instruction) -> tuple[Primitive, Params]:
    total = "_to" if x.attributes.type == "TOTALORDER" else ""
    name = f"{x.attributes.direction.lower()}{total}"
    return (primitives[name], {}) if name in primitives else (_unknown(x), x.attributes._asdict())


_ACCURATE = "cbrt cos exp expm1 log log1p logistic rsqrt sin sqrt tan tanh".split()
_ELEMENTWISE: dict[str, Callable[[Instruction], tuple[Primitive, Params]]] = {
    **{op: _named(name, **({"accuracy": None} if name in _ACCURATE else {})) for op, name in UNARY.items()},
    **{op: _named(name) for op, name in BINARY.items()},
    **{op: _named(op) for op in BITWISE},
    "multiply": _named("mul", out_dtype=None),
    "chain-multiply": _named("mul", out_dtype=None),
    "chain-divide": _named("div"),
    "compare": _comparison,
    "round-nearest-even": _named("round", rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN),
    "round-nearest-afz": _named("round", rounding_method=lax.RoundingMethod.AWAY_FROM_ZERO),
}


def _simple(name: str, params: Callable[[Instruction, Any], Params]) -> Callable[[Instruction, list[Atom]], Translated]:
    return lambda x, operands: (primitives[name], params(x, x.attributes), operands)


def _select(x: Instruction, operands: list[Atom]) -> Translated:
    which, on_true, on_false = operands
    return primitives["select_n"], {}, [which, on_false, on_true]


def _reshape(x: Instruction, operands: list[Atom]) -> Translated:
    before, after = x.operands[0].array_shape.dimensions, x.array_shape.dimensions
    dropped = _ones_dropped(before, after)
    if dropped is not None and len(after) < len(before):
        return primitives["squeeze"], {"dimensions": dropped}, operands
    added = _ones_dropped(after, before)
    if added is not None and len(after) > len(before):
        kept = tuple(d for d in range(len(after)) if d not in added)
        return (
            primitives["broadcast_in_dim"],
            {"shape": after, "broadcast_dimensions": kept, "sharding": None},
            operands,
        )
    return primitives["reshape"], {"new_sizes": after, "dimensions": None, "sharding": None}, operands


def _ones_dropped(long: Sequence[int], short: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions of size 1 without which one shape is the other, if there are such."""
    dropped: list[int] = []
    k = 0
    for d, size in enumerate(long):
        if (
            k < len(short)
            and size == short[k]
            and len(long) - d > len(short) - k - 1
            and not (size == 1 and len(long) - d > len(short) - k)
        ):
            k += 1
        elif size == 1:
            dropped.append(d)
        else:
            return None
    return tuple(dropped) if k == len(short) else None


def _dot(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    numbers = ((a.lhs_contracting_dims, a.rhs_contracting_dims), (a.lhs_batch_dims, a.rhs_batch_dims))
    params = {"precision": precision_of(a), "preferred_element_type": x.array_shape.dtype, "out_sharding": None}
    return primitives["dot_general"], {"dimension_numbers": numbers, **params}, operands


def _reduction(x: Instruction, operands: list[Atom]) -> Translated:
    kind = combination(x.attributes.to_apply)
    if len(operands) != 2 or kind is None or not starts_with(kind, operands[1]):
        params = {"computation": None, "jaxpr": closed_computation(x.attributes.to_apply)}
        return primitives["reduce"], params | {"dimensions": x.attributes.dimensions}, operands
    params = {"axes": x.attributes.dimensions} | ({"out_sharding": None} if kind == "sum" else {})
    return primitives[f"reduce_{kind}"], params, operands[:1]


# The primitives of calls with rules of other kinds than JVPs and VJPs.
_RULES: dict[Any, str] = {
    Implicit: "custom_linear_solve",
    LinearCall: "linear_call",
    CustomVmap: "custom_vmap_call",
}


def _reduce_window(x: Instruction, operands: list[Atom]) -> Translated:
    window = x.attributes.window
    found = reduce_window(x, operands)
    if found is not None or any(w.window_reversal for w in window):
        return found
    params = {"jaxpr": closed_computation(x.attributes.to_apply), "consts": (), **window_params(window)}
    return primitives["reduce_window"], params, operands


def _select_and_scatter(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    params = {name: sizes for name, sizes in window_params(a.window).items() if "dilation" not in name}
    selection = a.select.root
    direction = selection.attributes.direction.lower() if selection.op is elementwise.compare else ""
    is_plain = direction in ("ge", "le") and list(selection.operands) == list(a.select.parameters)
    if is_plain and combination(a.scatter) == "sum" and starts_with("sum", operands[2]):
        return primitives["select_and_scatter_add"], {"select_prim": primitives[direction], **params}, operands[1::-1]
    select, scatter = closed_computation(a.select), closed_computation(a.scatter)
    called = {"select_jaxpr": select, "select_consts": (), "scatter_jaxpr": scatter, "scatter_consts": ()}
    return primitives["select_and_scatter"], called | params, operands


def _call(translation: Translation, x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    rule = a.rule
    if isinstance(rule, Region):
        if len(operands) == rule.count:
            return rule.primitive, rule.params, operands
        rule = None
    if isinstance(rule, PrimitiveRule):
        return (rule.primitive, rule.params, operands) if len(operands) == rule.count else None
    closed = closed_computation(a.to_apply, translation.types_inside(x.operands))
    if a.partitioning is not None:
        return primitives["custom_partitioning"], {"call": closed, "partitioning": a.partitioning}, operands
    if isinstance(rule, CustomJvp) or (isinstance(rule, Implicit) and rule.name == "custom_root"):
        symbolic = isinstance(rule, CustomJvp) and rule.symbolic_zeros
        params = {"call_jaxpr": closed, "jvp_jaxpr_fun": rule, "num_consts": 0, "symbolic_zeros": symbolic}
        return primitives["custom_jvp_call"], params, operands
    if isinstance(rule, CustomVjp):
        params = {
            "call_jaxpr": closed,
            "fwd_jaxpr_thunk": rule,
            "bwd": rule.back,
            "num_consts": 0,
            "symbolic_zeros": False,
        }
        return primitives["custom_vjp_call"], params, operands
    if rule is not None:
        return primitives[_RULES[type(rule)]], {"call_jaxpr": closed, "rule": rule}, operands
    if a.checkpoint is not None:
        policy, barrier, is_back = a.checkpoint
        jaxpr = closed if closed.consts else closed.jaxpr  # JAX's is open
        params = {"jaxpr": jaxpr, "policy": policy, "prevent_cse": barrier, "differentiated": is_back}
        return primitives["remat2"], params, operands
    flags = {"donated_invars": (False,) * len(operands), "keep_unused": False, "inline": False}
    return primitives["jit"], {"name": function_name(a.to_apply), "jaxpr": closed, **flags}, operands


def _shard_map(translation: Translation, x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    closed = closed_computation(a.to_apply, translation.types_of_parts(x))
    params = {
        "mesh": a.mesh,
        "in_specs": tuple(map(spec_of, a.in_specs)),
        "out_specs": tuple(map(spec_of, a.out_specs)),
        "jaxpr": closed if closed.consts else closed.jaxpr,  # JAX's is open
        "check_vma": a.check_vma,
        "newly_manual_axes": frozenset(own_axes(a.manual_axes, a.mesh.axis_names)),
    }
    return primitives["shard_map"], params, operands


_OVER_AXES = {"sum": "psum", "max": "pmax", "min": "pmin"}


def _all_reduce(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    name = _OVER_AXES.get(combination(a.to_apply) or "")
    if name is None or a.axis_name == REPLICAS or a.replica_groups:
        return None
    return primitives[name], {"axes": (a.axis_name,), "axis_index_groups": None}, operands


def _permute(x: Instruction, operands: list[Atom]) -> Translated:
    a = x.attributes
    if a.axis_name == REPLICAS:
        return None
    return primitives["ppermute"], {"axis_name": (a.axis_name,), "perm": a.source_target_pairs}, operands


def _constraint_params(x: Instruction, a: Any) -> Params:
    sums = sums_of(a.spec)
    spec = PartitionSpec(*a.spec, unreduced=sums.unreduced, reduced=sums.reduced)
    unconstrained = {k for k, part in enumerate(spec) if part is PartitionSpec.UNCONSTRAINED}
    is_current = context.is_set and a.mesh == context.mesh and a.memory_kind is None
    mesh = a.mesh.abstract_mesh if is_current else a.mesh  # whose devices are those of the context
    return {"sharding": NamedSharding(mesh, spec, memory_kind=a.memory_kind), "unconstrained_dims": unconstrained}


_CASTS = {("varying", "unreduced"): "vary_unreduced_cast_p", ("reduced", "varying"): "reduced_vary_cast_p"}


def _recast(x: Instruction, operands: list[Atom]) -> Translated:
    """JAX's casts by their names; others, which are parts of its operations, have none."""
    a = x.attributes
    name = _CASTS.get((a.source, a.target))
    kinds = {} if name else {"source": a.source, "target": a.target}
    return _simple(name or "recast", lambda x, a: {"axes": (a.axis_name,), **kinds})(x, operands)


def _loop(translation: Translation, x: Instruction, operands: list[Atom]) -> Translated:
    types = translation.types and translation.types.inside(translation.known[x])
    test, body = (closed_computation(made, types) for made in (x.attributes.condition, x.attributes.body))
    params = {"cond_nconsts": 0, "cond_jaxpr": test, "body_nconsts": 0, "body_jaxpr": body}
    return primitives["while"], params, operands


def _branches(translation: Translation, x: Instruction, operands: list[Atom]) -> Translated:
    if x.operands[0].array_shape.element_type.name != "s32":
        return None
    types = translation.types_inside(x.operands[1:])
    branches = tuple(closed_computation(made, types) for made in x.attributes.branch_computations)
    return primitives["cond"], {"branches": branches}, operands


def _slice_params(x: Instruction, a: Any) -> Params:
    strides = None if all(s == 1 for s in a.strides) else a.strides
    return {"start_indices": a.start_indices, "limit_indices": a.limit_indices, "strides": strides}


_OF_COMPUTATIONS: dict[str, Callable[[Translation, Instruction, list[Atom]], Translated]] = {
    "call": _call,
    "while": _loop,
    "conditional": _branches,
    "shard-map": _shard_map,
}
_TRANSLATIONS: dict[str, Callable[[Instruction, list[Atom]], Translated]] = {
    **OP_TRANSLATIONS,
    "select": _select,
    "reshape": _reshape,
    "dot": _dot,
    "reduce": _reduction,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "checkpoint-name": _simple("name", lambda x, a: {"name": a.name}),
    "all-reduce": _all_reduce,
    "collective-permute": _permute,
    "sharding-constraint": _simple("sharding_constraint", _constraint_params),
    "recast": _recast,
    "pvary": _simple("pvary", lambda x, a: {"axes": (a.axis_name,)}),
    "psum-invariant": _simple("psum_invariant", lambda x, a: {"axes": (a.axis_name,)}),
    "convert": _simple(
        "convert_element_type",
        lambda x, a: {"new_dtype": x.array_shape.dtype, "weak_type": False, "sharding": None},
    ),
    "bitcast-convert": _simple("bitcast_convert_type", lambda x, a: {"new_dtype": x.array_shape.dtype}),
    "broadcast": _simple(
        "broadcast_in_dim", lambda x, a: {"shape": a.sizes, "broadcast_dimensions": a.dimensions, "sharding": None}
    ),
    "transpose": _simple("transpose", lambda x, a: {"permutation": a.permutation}),
    "reverse": _simple("rev", lambda x, a: {"dimensions": a.dimensions}),
    "slice": _simple("slice", _slice_params),
    "dynamic-slice": _simple("dynamic_slice", lambda x, a: {"slice_sizes": a.dynamic_slice_sizes}),
    "dynamic-update-slice": _simple("dynamic_update_slice", lambda x, a: {}),
    "pad": _simple("pad", lambda x, a: {"padding_config": a.padding_config}),
    "concatenate": _simple("concatenate", lambda x, a: {"dimension": a.dimension}),
    "clamp": _simple("clamp", lambda x, a: {}),
    "copy": _simple("copy", lambda x, a: {}),
    "opt-barrier": _simple("optimization_barrier", lambda x, a: {}),
    "reduce-precision": _simple(
        "reduce_precision", lambda x, a: {"exponent_bits": a.exponent_bits, "mantissa_bits": a.mantissa_bits}
    ),
    "iota": _simple(
        "iota",
        lambda x, a: {
            "dtype": a.shape.dtype,
            "shape": a.shape.dimensions,
            "dimension": a.iota_dimension,
            "sharding": None,
        },
    ),
}

"""JAX's primitives as functions of this library: what binding them does.

Parameters that say nothing here, as those of sharding and accuracy, are left out.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.ad_checkpoint import checkpoint, checkpoint_name
from tinyxla.api.functions import trace_tree
from tinyxla.api.sharding.shard_map import shard_map
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive
from tinyxla.jax.jaxprs.traces.current_trace import ProgramTrace
from tinyxla.jax.jaxprs.traces.rule_calls import bound_jvp_call, bound_vjp_call, jvp_call, vjp_call
from tinyxla.lax import elementwise as functions
from tinyxla.numpy import iinfo, stack, unstack
from tinyxla.ops import elementwise, movement
from tinyxla.ops.distributed import varying
from tinyxla.ops.op import ops
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import innermost, state
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.calls import call as call_op
from tinyxla.transforms.custom import Rule, apply


class LaxPrimitive(Primitive):
    """A primitive that is a function of this library: `function(*operands, **params)`."""

    def __init__(self, name: str, function: Callable[..., Any], multiple_results: bool = False) -> None:
        super().__init__(name)
        self.function = function
        self.multiple_results = multiple_results
        self.impl = self.apply_lowering = function  # type: ignore[method-assign]

    def bind(self, *args: Any, **params: Any) -> Any:
        trace = state.staging
        if isinstance(trace, ProgramTrace) and innermost(args) is trace:
            found = trace.processed(self, list(map(as_array, args)), params)
            return found if self.multiple_results else found[0]
        return self.function(*args, **params)


class CustomCall(LaxPrimitive):
    """A call of a function with a rule of its own. `subfuns`, of the parameters for `bind`, has that function for
    interpreters which run it in the place of the call, and the functions of the rule.

    Args:
        name: that of the primitive.
        process: the name of the method by which a trace processes it.
        rule: the name of the parameter that has the rule in jaxprs.
        subfuns: the parameters for `bind`, of a rule.
        call: the results for operands, functions and further parameters.
    """

    def __init__(
        self,
        name: str,
        process: str,
        rule: str,
        subfuns: Callable[[Any, Any], dict[str, Any]],
        call: Callable[..., list[Any]],
    ) -> None:
        super().__init__(name, self._called, True)
        self._process, self._rule, self._subfuns, self._call = process, rule, subfuns, call

    def _called(self, *args: Any, subfuns: Any = None, **params: Any) -> list[Any]:
        if "call_jaxpr" in params:
            return _with_rule(params[self._rule], params["call_jaxpr"], args)
        return self._call(args, *subfuns, **params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, **self._subfuns(params[self._rule], jaxpr_as_fun(params["call_jaxpr"]))}

    def bind_with_trace(self, trace: ProgramTrace, args: Sequence[Any], avals: Sequence[Any], params: Any, /) -> Any:
        subfuns = params["subfuns"]
        others = {name: x for name, x in params.items() if name not in ("subfuns", *_OF_JAXPRS)}
        return getattr(trace, self._process)(self, *subfuns, args, **others)


_OF_JAXPRS = "call_jaxpr jvp_jaxpr_fun fwd_jaxpr_thunk bwd num_consts".split()


def _windows(kind: str, combine: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction of the windows of an array."""

    def reduce(x: Any, **params: Any) -> Any:
        x = as_array(x)
        return lax.reduce_window(x, identity(kind, x.dtype), combine, **params)

    return reduce


def _approximate_top(x: Any, k: int, reduction_dimension: int = -1, is_max_k: bool = True, **ignored: Any) -> list[Any]:
    return list((lax.approx_max_k if is_max_k else lax.approx_min_k)(x, k, reduction_dimension))


def _dropping(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A function that also takes these parameters, which say nothing here."""

    @functools.wraps(function)
    def of_others(*args: Any, **params: Any) -> Any:
        return function(*args, **{k: v for k, v in params.items() if k not in names})

    return of_others


# --- element by element -----------------------------------------------------------------------------------------------

# The name of an op: that of JAX's primitive, which has the name of the function in `lax`.
BITWISE = {"and": "bitwise_and", "not": "bitwise_not", "or": "bitwise_or", "xor": "bitwise_xor"}
UNARY = {op: name for op, name in functions.UNARY.items() if op not in BITWISE}
BINARY = {op: name for op, name in functions.BINARY.items() if op not in BITWISE}
# Functions of `lax` that are compositions here, and primitives in JAX.
COMPOSITIONS = """
    acos acosh asin asinh atan atanh bessel_i0e bessel_i1e conj digamma erfc exp2 igamma igamma_grad_a igammac lgamma
    nextafter polygamma square zeta
""".split()
_IGNORED = ("accuracy", "input_dtype", "out_dtype", "out_sharding", "sharding")

primitives: dict[str, LaxPrimitive] = {}


def _define(name: str, function: Callable[..., Any], multiple_results: bool = False) -> None:
    primitives[name] = LaxPrimitive(name, _dropping(function, *_IGNORED), multiple_results)


for _name in (*UNARY.values(), *BINARY.values(), *COMPOSITIONS):
    _define(_name, getattr(lax, _name))
for _name in BITWISE:
    _define(_name, getattr(lax, BITWISE[_name]))
for _name in "eq ne lt le gt ge".split():
    _define(_name, getattr(lax, _name))
for _name in "eq lt le".split():
    _define(f"{_name}_to", functools.partial(elementwise.compare, direction=_name.upper(), type="TOTALORDER"))

_define("regularized_incomplete_beta", lax.betainc)
_define("integer_pow", lax.integer_pow)
_define("select_n", lax.select_n)
_define("clamp", lax.clamp)
_define("round", lax.round)
_define(
    "convert_element_type",
    lambda x, new_dtype, weak_type=False: elementwise.convert(
        as_array(x), new_element_type=element_type(np.dtype(new_dtype))
    ).with_weak_type(weak_type),
)
_define(
    "bitcast_convert_type",
    lambda x, new_dtype: ops["bitcast-convert"](as_array(x), new_element_type=element_type(np.dtype(new_dtype))),
)
_define("reduce_precision", lax.reduce_precision)
_define("stop_gradient", lax.stop_gradient)
_define("add_any", lax.add)  # of cotangents
_define("name", checkpoint_name)
_define("copy", lambda x: ops["copy"](as_array(x)))


# --- shapes, contractions, reductions ---------------------------------------------------------------------------------

_define("broadcast_in_dim", lambda x, shape, broadcast_dimensions: lax.broadcast_in_dim(x, shape, broadcast_dimensions))
_define("reshape", lambda x, new_sizes, dimensions=None: lax.reshape(x, new_sizes, dimensions))
_define("squeeze", lax.squeeze)
_define("transpose", lax.transpose)
_define("rev", lax.rev)
_define("slice", lax.slice)
_define("dynamic_slice", lambda x, *starts, slice_sizes: lax.dynamic_slice(x, starts, slice_sizes))
_define("dynamic_update_slice", lambda x, update, *starts: lax.dynamic_update_slice(x, update, starts))
_define("pad", lax.pad)
_define("concatenate", lambda *xs, dimension: lax.concatenate(xs, dimension))
_define(
    "iota",
    lambda dtype, shape, dimension: movement.iota(
        shape=Shape(element_type(np.dtype(dtype)), shape), iota_dimension=dimension
    ),
)
_define("dot_general", lax.dot_general)
_define("fft", lambda x, fft_type, fft_lengths: lax.fft(x, fft_type, fft_lengths))
_define("cholesky", lambda x, symmetrize_input=False: lax.linalg.cholesky(x, symmetrize_input=symmetrize_input))
_define("optimization_barrier", lambda *xs: list(lax.optimization_barrier(xs)), True)
_define("approx_top_k", _approximate_top, True)
_define("top_k", lambda x, k, **options: list(lax.top_k(x, k, **options)), True)
_define("argmax", lambda x, axes, index_dtype: lax.argmax(x, axes[0], index_dtype))
_define("argmin", lambda x, axes, index_dtype: lax.argmin(x, axes[0], index_dtype))
_define("gather", lax.gather)
for _name in "scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max".split():
    _define(_name, _dropping(getattr(lax, _name.replace("-", "_")), "update_jaxpr", "update_consts"))
_define("sort", lambda *xs, **options: list(lax.sort(xs, **options)), True)
_define("split", lambda x, sizes, axis=0: list(lax.split(x, sizes, axis)), True)
_define("tile", lambda x, reps: lax.tile(x, reps))
_define("conv_general_dilated", lax.conv_general_dilated)
for _name, _combine in {"sum": lax.add, "max": lax.max, "min": lax.min}.items():
    _define(f"reduce_window_{_name}", _windows(_name, _combine))
_define("cumsum", lax.cumsum)
_define("cumprod", lax.cumprod)
_define("cummax", lax.cummax)
_define("cummin", lax.cummin)
_define("cumlogsumexp", lax.cumlogsumexp)

# The op that combines two elements, and the function: by the ending of the reduction's name.
REDUCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "sum": ("add", lax.add),
    "prod": ("multiply", lax.mul),
    "max": ("maximum", lax.max),
    "min": ("minimum", lax.min),
    "and": ("and", lax.bitwise_and),
    "or": ("or", lax.bitwise_or),
    "xor": ("xor", lax.bitwise_xor),
}


def identity(kind: str, dtype: Any) -> Any:
    """The identity of a reduction's monoid."""
    known = element_type(dtype)
    if kind in ("sum", "or", "xor"):
        return np.zeros((), dtype)
    if kind == "prod" or (known.kind == "pred" and kind == "and"):
        return np.ones((), dtype)
    if kind == "and":
        return np.bitwise_not(np.zeros((), dtype))
    if known.kind == "pred":
        return np.asarray(kind == "min")
    if known.is_integer:
        return np.asarray(iinfo(dtype).min if kind == "max" else iinfo(dtype).max, dtype)
    return np.asarray(-np.inf if kind == "max" else np.inf, dtype)


def _reduction(kind: str) -> Callable[..., Any]:
    function = REDUCTIONS[kind][1]

    def reduce(x: Any, axes: Sequence[int]) -> Any:
        x = as_array(x)
        return lax.reduce(x, identity(kind, x.dtype), function, tuple(axes))

    return reduce


# --- factorizations, bits, named axes ---------------------------------------------------------------------------------


def _of_known(function: Callable[..., Any], results: Callable[[Any], Any] = lambda x: x) -> Callable[..., Any]:
    """A function without the parameters that it does not have."""
    known = inspect.signature(function).parameters

    def call(*args: Any, **params: Any) -> Any:
        return results(function(*args, **{name: x for name, x in params.items() if name in known}))

    return call


def _values_first(found: Any) -> list[Any]:
    """Singular values alone, or before both factors."""
    return [found[1], found[0], found[2]] if isinstance(found, list | tuple) else [found]


_SEVERAL = "eig eigh hessenberg lu qr schur tridiagonal".split()
FACTORIZATIONS = """cholesky_update eig eigh hessenberg householder_product lu lu_pivots_to_permutation ormqr
    qr schur symmetric_product triangular_solve tridiagonal tridiagonal_solve""".split()
for _name in FACTORIZATIONS:
    _define(_name, _of_known(getattr(lax.linalg, _name), list if _name in _SEVERAL else lambda x: x), _name in _SEVERAL)
_define("svd", lambda x, **params: _values_first(_of_known(lax.linalg.svd)(x, **params)), True)
_define("rng_bit_generator", lambda key, **params: list(_of_known(lax.rng_bit_generator)(key, **params)), True)
_define("rng_uniform", lambda a, b, shape: lax.rng_uniform(a, b, shape))
_define("after_all", lax.after_all)
_define("create_token", lax.create_token)
primitives["sharding_constraint"] = LaxPrimitive(
    "sharding_constraint", lambda x, sharding, **ignored: lax.with_sharding_constraint(x, sharding)
)
_define("stack", lambda *xs, axis: stack(xs, axis))
_define("unstack", lambda x, axis: list(unstack(x, axis=axis)), True)
_define("device_put", lambda *xs, **ignored: list(xs), True)
_define("axis_index", lax.axis_index)


def _over_axes(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda *xs, axes, **ignored: [function(x, axes) for x in xs]


def _shard_map(
    *args: Any,
    jaxpr: Jaxpr | ClosedJaxpr,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    newly_manual_axes: Any,
    check_vma: bool,
    **ignored: Any,
) -> list[Any]:
    closed = jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())
    of_parts = shard_map(
        lambda *xs: list(jaxpr_as_fun(closed)(*xs)),
        mesh=mesh,
        in_specs=tuple(in_specs),
        out_specs=list(out_specs),
        axis_names=newly_manual_axes,
        check_vma=check_vma,
    )
    return list(of_parts(*args))


_define("shard_map", _shard_map, True)


def _custom_partitioning(*args: Any, call: ClosedJaxpr, partitioning: Any) -> list[Any]:
    made, captured, weak, _ = trace_tree(lambda *xs: list(jaxpr_as_fun(call)(*xs)), args, {})
    found = call_op(*map(as_array, args), *captured, to_apply=made, partitioning=partitioning)
    return [x.with_weak_type(w) for x, w in zip(found, weak, strict=True)]


_define("custom_partitioning", _custom_partitioning, True)


def _recast(x: Any, axes: Any, source: str, target: str) -> Any:
    for name in axes:
        x = varying.recast(x, axis_name=name, source=source, target=target)
    return x


_define("recast", _recast)
_define("vary_unreduced_cast_p", lambda x, axes: lax.pcast(x, axes, to="unreduced"))
_define("reduced_vary_cast_p", lambda x, axes: lax.pcast(x, axes, to="varying"))
_define("pvary", lambda x, axes: lax.pcast(x, axes, to="varying"))
_define("psum_invariant", lambda x, axes: [functools.reduce(_summed_over, axes, as_array(x))], True)


def _summed_over(x: Any, name: Any) -> Any:
    return varying.psum_invariant(x, axis_name=name)


for _name in "psum pmax pmin".split():
    _define(_name, _over_axes(getattr(lax, _name)), True)
for _name in "all_gather all_to_all ppermute".split():
    _define(_name, _of_known(getattr(lax, _name)))

for _kind in REDUCTIONS:
    _define(f"reduce_{_kind}", _reduction(_kind))


# --- control flow and calls -------------------------------------------------------------------------------------------


def _scan(
    *args: Any,
    jaxpr: ClosedJaxpr,
    length: int,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    unroll: Any = 1,
    **ignored: Any,
) -> list[Any]:
    constants, carry, xs = args[:num_consts], args[num_consts : num_consts + num_carry], args[num_consts + num_carry :]
    step = jaxpr_as_fun(jaxpr)

    def body(carried: Any, x: Any) -> tuple[Any, Any]:
        found = step(*constants, *carried, *x)
        return found[:num_carry], found[num_carry:]

    final, ys = lax.scan(body, list(carry), list(xs), length, reverse, unroll)
    return [*final, *ys]


def _while(
    *args: Any, cond_jaxpr: ClosedJaxpr, cond_nconsts: int, body_jaxpr: ClosedJaxpr, body_nconsts: int
) -> list[Any]:
    """A condition with an element for each of several lanes lets the loop run as long as one of them is true; lanes in
    which it is false keep their values."""
    first, second = args[:cond_nconsts], args[cond_nconsts : cond_nconsts + body_nconsts]
    test, step = jaxpr_as_fun(cond_jaxpr), jaxpr_as_fun(body_jaxpr)
    init = list(args[cond_nconsts + body_nconsts :])
    if not cond_jaxpr.out_avals[0].shape:
        return lax.while_loop(lambda x: test(*first, *x)[0], lambda x: step(*second, *x), init)

    def going_on(x: list[Any]) -> list[Any]:
        (lanes,) = test(*first, *x)
        kept = zip(step(*second, *x), x, strict=True)
        return [lax.select(lax.broadcast_in_dim(lanes, y.shape, range(lanes.ndim)), y, old) for y, old in kept]

    return lax.while_loop(lambda x: test(*first, *x)[0].any(), going_on, init)


def _cond(index: Any, *args: Any, branches: Sequence[ClosedJaxpr], **ignored: Any) -> list[Any]:
    return lax.switch(index, [jaxpr_as_fun(b) for b in branches], *args)


def _jit(
    *args: Any, jaxpr: ClosedJaxpr, in_shardings: Sequence[Any] = (), out_shardings: Sequence[Any] = (), **ignored: Any
) -> list[Any]:
    return _constrained(jaxpr.compiled(*_constrained(args, in_shardings)), out_shardings)


def _constrained(arrays: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
    """Arrays under shardings, where there are such."""
    pairs = itertools.zip_longest(arrays, shardings)
    return [x if sharding is None else lax.with_sharding_constraint(x, sharding) for x, sharding in pairs]


def _remat(
    *args: Any, jaxpr: Jaxpr | ClosedJaxpr, policy: Any = None, prevent_cse: bool = True, **ignored: Any
) -> list[Any]:
    closed = jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, [])
    return checkpoint(jaxpr_as_fun(closed), policy=policy, prevent_cse=prevent_cse)(*args)


def _with_rule(rule: Rule, jaxpr: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    values = [as_array(x) for x in args]
    captured, function = values[rule.count :], jaxpr_as_fun(jaxpr)
    return list(apply(rule.with_function(lambda *x: function(*x, *captured), captured), *values[: rule.count]))


_define("scan", _scan, True)
_define("while", _while, True)
_define("cond", _cond, True)
_define("jit", _jit, True)
_define("closed_call", lambda *args, call_jaxpr, **ignored: jaxpr_as_fun(call_jaxpr)(*args), True)
_define("call", lambda *args, call_jaxpr, **ignored: jaxpr_as_fun(call_jaxpr)(*args), True)
_define("remat2", _remat, True)
for _name in "custom_linear_solve custom_vmap_call linear_call".split():
    _define(_name, lambda *args, call_jaxpr, rule: _with_rule(rule, call_jaxpr, args), True)
primitives["custom_jvp_call"] = CustomCall(
    "custom_jvp_call", "process_custom_jvp_call", "jvp_jaxpr_fun", jvp_call, bound_jvp_call
)
primitives["custom_vjp_call"] = CustomCall(
    "custom_vjp_call", "process_custom_vjp_call", "fwd_jaxpr_thunk", vjp_call, bound_vjp_call
)

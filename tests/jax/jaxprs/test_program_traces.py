"""Traces and tracers that programs define: classes of `jax.core.Trace` and `jax.core.Tracer`."""

from __future__ import annotations

import pytest

from tests.jax.test_jax_hook import lines as printed

# An interpreter whose values carry the powers of a unit. What has no rule is computed without units.
UNITS = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.extend import core
from jax.extend import linear_util as lu

seen = []

class Quantity:
    def __init__(self, array, power=0):
        self.array, self.power = array, power

class UnitTracer(jax.core.Tracer):
    __slots__ = ("value",)
    def __init__(self, trace, value):
        self._trace, self.value = trace, value
    @property
    def aval(self):
        return jax.typeof(self.value.array)

class UnitTrace(jax.core.Trace):
    def __init__(self, parent, tag):
        super().__init__()
        self.parent, self.tag = parent, tag

    def value(self, x):
        return x.value if isinstance(x, UnitTracer) and x._trace.tag is self.tag else Quantity(x)

    def process_primitive(self, primitive, tracers, params):
        seen.append(primitive.name)
        values = [self.value(x) for x in tracers]
        arrays, powers = [v.array for v in values], [v.power for v in values]
        power = 0
        if primitive in (lax.mul_p, lax.dot_general_p):
            power = sum(powers)
        elif primitive is lax.integer_pow_p:
            power = powers[0] * params["y"]
        elif primitive in (lax.add_p, lax.broadcast_in_dim_p, lax.reduce_sum_p, lax.slice_p, lax.squeeze_p):
            assert len(set(powers)) == 1, f"{primitive} of units {powers}"
            power = powers[0]
        elif primitive is core.primitives.jit_p:
            return [UnitTracer(self, v) for v in run(core.jaxpr_as_fun(params["jaxpr"]), self.parent, *values)]
        avals = [jax.typeof(x) for x in arrays]
        out = primitive.bind_with_trace(self.parent, tuple(arrays), avals, params)
        if primitive.multiple_results:
            return [UnitTracer(self, Quantity(x)) for x in out]
        return UnitTracer(self, Quantity(out, power))

    def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
        seen.append(f"{primitive} {symbolic_zeros}")
        arrays = [self.value(x).array for x in tracers]
        subfuns = {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros}
        out = primitive.bind_with_trace(self.parent, arrays, [jax.typeof(x) for x in arrays], subfuns)
        return [UnitTracer(self, Quantity(x)) for x in out]

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, *, out_trees, symbolic_zeros):
        seen.append(primitive.name)
        arrays = [self.value(x).array for x in tracers]
        subfuns = {"subfuns": (fun, fwd, bwd), "out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
        out = primitive.bind_with_trace(self.parent, arrays, [jax.typeof(x) for x in arrays], subfuns)
        return [UnitTracer(self, Quantity(x)) for x in out]

def run(function, parent, *values):
    trace = UnitTrace(parent, core.TraceTag())
    with core.set_current_trace(trace):
        found = function(*[UnitTracer(trace, v) for v in values])
    return jax.tree.map(trace.value, found)

def with_units(function):
    def call(*values):
        with core.take_current_trace() as parent:
            return run(function, parent, *values)
    return call

def show(found):
    for q in jax.tree.leaves(found, is_leaf=lambda x: isinstance(x, Quantity)):
        print(np.round(np.asarray(q.array, float), 3).tolist(), q.power, *seen)
    seen.clear()

x = jnp.arange(1.0, 4.0)
metres = Quantity(x, 1)
plain = lambda function: lambda array: with_units(function)(Quantity(array)).array
"""

# What is called, and what is printed: values, powers of the unit, primitives in order.
CASES = {
    "with_units(lambda v: v * v + 2.0 * v ** 2)(metres)": "[3.0, 12.0, 27.0] 2 mul integer_pow mul add",
    "with_units(lambda v: v[0] * v * (v > 1.0))(metres)": "[0.0, 2.0, 3.0] 2 slice squeeze mul gt "
    "convert_element_type mul",
    "with_units(lambda v: v[0])(metres)": "1.0 1 slice squeeze",
    "with_units(lambda v: jnp.sum(v @ jnp.ones((3, 1))))(metres)": "6.0 1 broadcast_in_dim dot_general reduce_sum",
    "with_units(jax.jit(lambda v: v * v))(metres)": "[1.0, 4.0, 9.0] 2 jit mul",
    "with_units(jax.vmap(lambda v: v * 3.0))(metres)": "[3.0, 6.0, 9.0] 1 mul",
    "with_units(jax.grad(lambda v: jnp.sum(v ** 2)))(metres)": "[2.0, 4.0, 6.0] 1 integer_pow mul reduce_sum mul",
    "with_units(lambda v: jnp.argmax(v))(metres)": "2.0 0 iota argmax",
    "with_units(lambda v: lax.square(v))(metres)": "[1.0, 4.0, 9.0] 0 square",
    "with_units(lambda v: lax.scan(lambda c, y: (c + y, None), 0.0, v)[0])(metres)": "6.0 0 scan",
    "with_units(lambda v: lax.fori_loop(0, v[0], lambda k, y: y + k, 0.0))(Quantity(x.astype(int)))": "0.0 0 slice "
    "squeeze while",
    "with_units(lambda v: lax.cond(v[0] > 0, jnp.sin, jnp.cos, v))(metres)": "[0.841, 0.909, 0.141] 0 slice squeeze gt "
    "convert_element_type cond",
    "with_units(lambda v: jnp.sin(x) + jnp.zeros(3))(metres)": "[0.841, 0.909, 0.141] 0 sin add",
    "with_units(lambda v: jnp.ones(2))(metres)": "[1.0, 1.0] 0",
    "with_units(lambda v: mine(v))(metres)": "[2.0, 4.0, 6.0] 0 mine",
    "with_units(lambda v: tenfold(v))(metres)": "[0.841, 0.909, 0.141] 0 custom_jvp_call False",
    "with_units(lambda v: counted(v))(metres)": "[0.841, 0.909, 0.141] 0 custom_vjp_call",
    # with the trace inside of others
    "Quantity(jax.jit(plain(lambda v: v * v))(x))": "[1.0, 4.0, 9.0] 0 mul",
    "Quantity(jax.grad(lambda a: plain(lambda v: jnp.sum(v ** 2))(a))(x))": "[2.0, 4.0, 6.0] 0 integer_pow reduce_sum",
    "Quantity(jax.vmap(plain(lambda v: v * 2.0))(x))": "[2.0, 4.0, 6.0] 0 mul",
    "Quantity(jax.grad(lambda a: plain(tenfold)(a).sum())(x))": "[10.0, 10.0, 10.0] 0 custom_jvp_call False",
    "Quantity(jax.jit(jax.grad(lambda a: plain(tenfold)(a).sum()))(x))": "[10.0, 10.0, 10.0] 0 custom_jvp_call False",
    "Quantity(jax.grad(lambda a: plain(counted)(a).sum())(x))": "[5.0, 5.0, 5.0] 0 custom_vjp_call",
    "Quantity(jax.jit(jax.grad(lambda a: plain(counted)(a).sum()))(x))": "[5.0, 5.0, 5.0] 0 custom_vjp_call",
    "with_units(lambda v: v * with_units(lambda w: w * v)(Quantity(2.0)).array)(metres)": "[2.0, 8.0, 18.0] 2 mul mul "
    "mul",
}
_PROGRAM = f"""{UNITS}
mine = core.Primitive("mine")
mine.def_impl(lambda y: 2 * y)
own, mine_p = mine, mine
mine = lambda y: mine_p.bind(y)

@jax.custom_jvp
def tenfold(y):
    return jnp.sin(y)

tenfold.defjvp(lambda p, t: (tenfold(*p), 10 * t[0]))

@jax.custom_vjp
def counted(y):
    return jnp.sin(y)

counted.defvjp(lambda y: (jnp.sin(y), y), lambda y, g: (5 * g,))
for source in {list(CASES)!r}:
    show(eval(source))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return dict(zip(CASES, printed(_PROGRAM), strict=True))


@pytest.mark.parametrize("source", CASES)
def test_operations_are_primitives_of_the_trace(found: dict[str, str], source: str) -> None:
    assert found[source] == CASES[source]


def test_interpreter_is_asked_for_what_it_lacks() -> None:
    assert printed("""
        import copy
        import jax, jax.numpy as jnp
        from jax.extend import core

        class Value(jax.core.Tracer):
            pass

        class Silent(jax.core.Trace):
            pass

        print(issubclass(Value, jax.core.Tracer), isinstance(jnp.ones(1), jax.core.Tracer), Value.__name__)
        kinds = lambda x: (isinstance(x, jax.core.Tracer), isinstance(x, Value), isinstance(x._trace, jax.core.Trace))
        jax.jit(lambda x: print(*kinds(x)))(1.0)
        ruled = jax.custom_jvp(lambda x: x)
        ruled.defjvp(lambda primals, tangents: (primals, tangents))
        trace = Silent()
        x = Value(trace, jax.core.ShapedArray((2,), "float32"))
        print(x.shape, x.dtype, isinstance(x, jax.Array), jax.typeof(x))
        for attempt in (
            lambda: jnp.sin(x),
            lambda: jax.nn.relu(x) + jax.jit(jnp.sin)(x),
            lambda: bool(Value(trace, jax.core.ShapedArray((), "float32"))),
            lambda: copy.copy(x),
            lambda: ruled(x),
        ):
            try:
                with core.set_current_trace(trace):
                    print(attempt())
            except (NotImplementedError, jax.errors.ConcretizationTypeError) as error:
                print(str(error).partition(" needs")[0])
        try:
            jnp.sin(x)
        except jax.errors.UnexpectedTracerError as error:
            print(str(error).splitlines()[0])
        """) == [
        "True False Value",
        "True False True",
        "(2,) float32 True float32[2]",
        "Silent must define process_primitive.",
        "Silent must define process_primitive.",
        "A Python condition (if, while, and, or, not, bool())",
        "Value<float32[2]>",
        "Silent must define process_custom_jvp_call, for functions with rules of custom_jvp.",
        "A tracer f32[2] is used after a trace that the program defines, to which it belongs, has ended. Return the "
        "value from the function instead of storing it in an outer variable, attribute or container.",
    ]


def test_arrays_with_operators_of_their_own_are_left_to_these() -> None:
    assert printed("""
        import jax.numpy as jnp, numpy as np

        class Metres:
            def __array__(self, dtype=None, copy=None):
                return np.ones(2)
            def __rmul__(self, other):
                return f"{other.tolist()} m"

        print(jnp.arange(2) * Metres(), jnp.add(jnp.arange(2), np.float32(1.0)), jnp.arange(2) * np.matrix([1, 2]))
        """) == ["[0, 1] m [1. 2.] [[0 2]]"]

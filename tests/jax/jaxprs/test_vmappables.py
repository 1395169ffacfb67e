"""`jax.interpreters.batching.register_vmappable`: values that are no pytrees, mapped by rules of the user's."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines as printed

NAMED = """
import jax, jax.numpy as jnp
from jax.interpreters import batching

class Named:
    def __init__(self, names, data):
        assert len(names) == data.ndim
        self.names, self.data = names, data

class Axis:
    def __init__(self, name, axis):
        self.name, self.axis = name, axis

def to_elt(take, index, value, axis):
    return Named([n for n in value.names if n != axis.name], take(value.data, axis.axis))

def from_elt(stack, size, value, axis):
    names = [*value.names[:axis.axis], axis.name, *value.names[axis.axis:]]
    return Named(names, stack(size, value.data, axis.axis))

batching.register_vmappable(Named, Axis, int, to_elt, from_elt, None)
x = Named(["i", "j"], jnp.arange(6.0).reshape(2, 3))
double = lambda value: Named(value.names, value.data * 2)
"""


def test_values_are_mapped_along_axes_of_their_type() -> None:
    assert printed(
        NAMED
        + """
y = jax.vmap(double, in_axes=Axis("i", 0), out_axes=Axis("i", 1), axis_size=2)(x)
print(y.names, y.data.tolist())
inner = jax.vmap(double, in_axes=Axis("j", 0), out_axes=Axis("j", 0), axis_size=3)
z = jax.vmap(inner, in_axes=Axis("i", 0), out_axes=Axis("i", 0), axis_size=2)(x)
print(z.names, z.data.tolist())
"""
    ) == [
        "['j', 'i'] [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]",
        "['i', 'j'] [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
    ]


def test_values_are_mapped_beside_arrays_with_named_axes_and_derivatives() -> None:
    assert printed(
        NAMED
        + """
def f(value, y, by):
    return Named(value.names, value.data + jax.lax.psum(y, "b") * by), y

a, b = jax.vmap(f, in_axes=(Axis("j", 1), 0, None), out_axes=(Axis("c", 0), 0), axis_name="b")(x, jnp.arange(3.0), 10)
print(a.names, a.data.tolist(), b.tolist())

def total(data):
    rows = jax.vmap(double, in_axes=Axis("i", 0), out_axes=Axis("i", 0), axis_size=2)(Named(["i", "j"], data))
    return jnp.sum(rows.data ** 2)

print(jax.jit(jax.grad(total))(x.data).tolist())
"""
    ) == [
        "['c', 'i'] [[30.0, 33.0], [31.0, 34.0], [32.0, 35.0]] [0.0, 1.0, 2.0]",
        "[[0.0, 8.0, 16.0], [24.0, 32.0, 40.0]]",
    ]


def test_what_is_not_registered_is_refused() -> None:
    found = printed(
        NAMED
        + """
def attempt(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])

attempt(lambda: jax.vmap(lambda value: 1.0, in_axes=Axis("i", None))(3.0))
attempt(lambda: batching.register_vmappable(int, Axis, float, to_elt, from_elt, None))
batching.unregister_vmappable(Named)
attempt(lambda: jax.vmap(double, in_axes=Axis("i", 0), axis_size=2)(x))
print(jax.vmap(lambda y: y + 1)(jnp.ones(2)).tolist())
"""
    )
    assert [line.split()[0] for line in found[:3]] == ["ArgumentError"] * 3
    assert found[1].endswith("but got <class 'float'> and None.")
    assert found[3] == "[2.0, 2.0]"


def test_objects_that_are_not_mapped_are_passed_on_where_a_type_has_integers_as_axes() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax.interpreters import batching

        class Pair: pass
        class Space: size = 3

        to_example = from_example = lambda take, size, pair, axis: pair
        batching.register_vmappable(Pair, int, int, to_example, from_example, None)
        scaled = lambda space, x, y: x * space.size + y
        print(jax.vmap(scaled, in_axes=(None, 0, None))(Space(), jnp.arange(3.0), jnp.ones(2)).tolist())
        print(jax.jit(lambda x: jax.vmap(scaled, in_axes=(None, 0, None))(Space(), x, 1))(jnp.arange(2)).tolist())
        """) == ["[[1.0, 1.0], [4.0, 4.0], [7.0, 7.0]]", "[1, 4]"]

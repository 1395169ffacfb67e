"""Types of values that change, `jax.experimental.hijax.MutableHiType`, in a process of their own."""

from __future__ import annotations

import pytest

from tests.jax.test_jax_hook import lines

PROGRAM = """
    import dataclasses
    import jax, jax.numpy as jnp
    from jax.experimental.hijax import HiPrimitive, MutableHiType, register_hitype

    @dataclasses.dataclass(frozen=True)
    class Known:
        avals: tuple
        tree: object
        def normalize(self): return Known(tuple(a.normalize() for a in self.avals), self.tree)

    class BoxType(MutableHiType):
        has_qdd = True
        def __hash__(self): return hash(BoxType)
        def __eq__(self, other): return isinstance(other, BoxType)
        def read_loval(self, known, box): return jax.tree.leaves(box.get())
        def new_from_loval(self, known, *values): return Box(jax.tree.unflatten(known.tree, values))
        def update_from_loval(self, known, box, *values): box.set(jax.tree.unflatten(known.tree, values))

    class Box:
        def __init__(self, held): self.held = held
        def get(self): return get.bind(self)
        def set(self, x): put.bind(self, x)
        def cur_qdd(self):
            leaves, tree = jax.tree.flatten(self.held)
            return Known(tuple(map(jax.typeof, leaves)), tree)

    class Get(HiPrimitive):
        def is_high(self, *avals): return True
        def impl(self, box): return box.held

    class Put(HiPrimitive):
        multiple_results = True
        def is_high(self, *avals): return True
        def impl(self, box, x): box.held = x; return []

    class New(HiPrimitive):
        def is_high(self, *avals): return True
        def impl(self, x): return Box(x)

    get, put, new = Get("get"), Put("put"), New("new")
    register_hitype(Box, lambda box: BoxType())

    def add(box, x):
        box.set({"sum": box.get()["sum"] + x})
        return 2 * x

    box = new.bind({"sum": jnp.zeros(())})
    total = lambda: print(box.get()["sum"])
"""

CASES = {
    "argument of a compiled function": ("print(jax.jit(add)(box, 1.0)); jax.jit(add)(box, 2.0); total()", "2.0 3.0"),
    "from around a compiled function": ("f = jax.jit(lambda x: add(box, x)); f(1.0); f(2.0); total()", "3.0"),
    "made in a compiled function": (
        "print(jax.jit(lambda x: (b := new.bind({'sum': x}), add(b, x), b.get()['sum'])[-1])(1.0)); total()",
        "2.0 0.0",
    ),
    "new structure": (
        "jax.jit(lambda b: b.set({**b.get(), 'n': jnp.ones(2)}))(box); print(sorted(box.get()), box.get()['n'])",
        "['n', 'sum'] [1. 1.]",
    ),
    "scan": ("jax.lax.scan(lambda c, x: (c, add(box, x)), None, jnp.arange(4.0)); total()", "6.0"),
    "fori_loop": ("jax.jit(lambda: jax.lax.fori_loop(0, 3, lambda i, c: c + add(box, 1.0), 0.0))(); total()", "3.0"),
    "cond": ("jax.lax.cond(True, lambda b: add(b, 1.0), lambda b: 0.0, box); total()", "1.0"),
    "vmap": (
        "box.set({'sum': jnp.zeros(2)}); jax.vmap(add)(box, jnp.arange(2.0)); total()",
        "[0. 1.]",
    ),
    "grad": ("print(jax.grad(lambda x: add(box, jax.lax.stop_gradient(x)) + x * x)(3.0)); total()", "6.0 3.0"),
    "made in a differentiated function": (
        "print(jax.grad(lambda x: (b := new.bind({'sum': x}), add(b, x), b.get()['sum'])[-1])(3.0)); total()",
        "2.0 0.0",
    ),
    "tracers": (
        "for f, x in (jax.grad(lambda x: add(box, x)), 1.0), (jax.vmap(lambda x: add(box, x)), jnp.ones(2)):\n"
        "    try: f(x)\n"
        "    except Exception as e: print(type(e).__name__)\n"
        "total()",
        "OuterReferenceError OuterReferenceError 0.0",
    ),
    "eval_shape": (
        "print(jax.eval_shape(add, box, 1.0)); total()",
        "ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True) 0.0",
    ),
    "twice": (
        "f = jax.jit(lambda a, b: None)\ntry: f(box, box)\nexcept Exception as e: print(type(e).__name__)",
        "ArgumentError",
    ),
}


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What the cases print, in one process."""
    program = "\n".join(f"box = new.bind({{'sum': jnp.zeros(())}})\n{code}\nprint('end')" for code, _ in CASES.values())
    found = lines(PROGRAM.replace("\n    ", "\n") + program)
    return " ".join(found).split("end")


@pytest.mark.parametrize("case", CASES)
def test_mutable_value(printed: list[str], case: str) -> None:
    assert printed[list(CASES).index(case)].strip() == CASES[case][1]

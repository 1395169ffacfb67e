"""Mutable references (`jax.new_ref`) in transformed functions, and `jax.experimental.random`: one program, under JAX
and under the hook, in a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.jax.test_jax_hook import lines as printed
from tests.support import ROOT

PROGRAM = """
import json, sys
import jax, numpy as np
import jax.numpy as jnp
from jax.experimental import random

found = {}

def case(function):
    try:
        leaves = [np.asarray(x) for x in jax.tree.leaves(function())]
        found[function.__name__] = [[str(x.dtype), x.tolist()] for x in leaves]
    except Exception as error:
        found[function.__name__] = f"{type(error).__name__}: {error}"

@case
def argument_of_jit():
    ref = jax.new_ref(jnp.zeros(3))
    @jax.jit
    def f(r, x):
        r[0] = x
        r[1] += x
        return x * r[0]
    return f(ref, 2.0), ref[...], f(ref, 3.0), ref[...]

@case
def argument_of_a_stage():
    ref, other = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.ones(3))
    def f(n, tree, x):
        tree["r"][...] += x + other[...]
        other[0] = n * x
        return tree["r"][...] * x
    traced = jax.jit(f, static_argnums=0).trace(2, {"r": ref}, x=jnp.float32(2))
    assert (traced.out_info.shape, traced.out_info.dtype) == ((3,), jnp.float32)
    assert str(traced.in_avals) == "(({'r': Ref{float32[3]}},), {'x': ShapedArray(float32[])})"
    compiled = traced.lower().compile()
    assert ref[...].sum() == 0 and other[0] == 1
    found = [compiled({"r": ref}, x=jnp.float32(k)) for k in (2, 3)]
    return found, ref[...], other[...], jax.jit(f, static_argnums=0).eval_shape(2, {"r": ref}, x=1.0).shape

@case
def donated_beside_a_reference():
    ref = jax.new_ref(jnp.zeros(3))
    f = jax.jit(lambda r, x, y: r.set(x + y), donate_argnums=2)
    return f.lower(ref, jnp.ones(3), jnp.ones(3)).donate_argnums

@case
def argument_of_shard_map():
    from jax.sharding import PartitionSpec as P
    ref = jax.new_ref(jnp.zeros(4))
    def f(r, x):
        r[...] += x + jax.lax.axis_index("x").astype("float32")
        return r[...] * x
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        typed = jax.jit(jax.shard_map(f, out_specs=P("x")))(ref, jnp.arange(4.0))
        given = jax.shard_map(f, in_specs=(P("x"), P("x")), out_specs=P("x"))
        return typed, jax.jit(given)(ref, jnp.arange(4.0)), ref[...]

@case
def written_before_a_loop_that_reads_it_with_others():
    ref, factor, total = (jax.new_ref(jnp.float32(k)) for k in range(3))
    def step(i, _):
        ref[...] += 1.0
        jax.lax.fori_loop(0, 2, lambda j, _: total.addupdate(ref[...] * factor[...]), None)
    jax.lax.fori_loop(0, 3, step, None)
    return ref[...], total[...]

@case
def argument_and_one_from_around_of_jit():
    around, ref = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.zeros(3))
    @jax.jit
    @jax.jit
    def f(r, x):
        around[...] += x
        r[2] += around[0]
        return x + 1
    return f(ref, 2.0), f(ref, 3.0), around[...], ref[...]

@case
def two_arguments_of_jit():
    a, b = jax.new_ref(jnp.zeros(2)), jax.new_ref(jnp.ones(2))
    @jax.jit
    def f(refs, x):
        refs["a"][...] += x * refs["b"][...]
    f({"a": a, "b": b}, 2.0)
    f({"a": b, "b": a}, 2.0)
    return a[...], b[...]

@case
def closed_over_by_jit():
    ref = jax.new_ref(jnp.zeros(3))
    @jax.jit
    def f(x):
        ref[0] += x
        return x * ref[0]
    first = f(2.0), f(2.0)
    ref[0] = 10.0
    return first, f(1.0), f(jnp.ones(2)[0]), ref[...]

@case
def read_by_jit_is_no_constant():
    ref = jax.new_ref(1.0)
    f = jax.jit(lambda x: x + ref[...])
    before = f(1.0)
    ref[...] = 5.0
    return before, f(1.0)

@case
def closed_over_by_nested_jit():
    a, b = jax.new_ref(0.0), jax.new_ref(0.0)
    @jax.jit
    def inner(x):
        a[...] += x
        return x + 1
    @jax.jit
    def outer(x):
        b[...] += inner(x)
        return inner(x)
    return outer(1.0), outer(2.0), a[...], b[...]

@case
def static_argument_of_jit():
    ref = jax.new_ref(jnp.zeros(2))
    @jax.jit
    def plain(x):
        ref[0] = x
    f = jax.jit(lambda k, r, x: r.set(k * x), static_argnums=0)
    f(3, ref, jnp.ones(2))
    plain(7.0)
    return ref[...]

@case
def made_inside():
    def f(x):
        ref = jax.new_ref(jnp.zeros(3))
        ref[0] = x * x
        ref[1] = jnp.sin(x) * ref[0]
        return ref[...].sum()
    return f(2.0), jax.jit(f)(2.0), jax.grad(f)(2.0), jax.jit(jax.grad(f))(2.0), jax.vmap(f)(jnp.arange(3.0))

@case
def mapped_argument():
    ref = jax.new_ref(jnp.zeros((2, 3)))
    def f(r, x):
        r[0] = x * x
        return r[1]
    return jax.vmap(f)(ref, jnp.arange(2.0)), ref[...], jax.jit(jax.vmap(f))(ref, jnp.arange(1.0, 3.0)), ref[...]

@case
def written_in_scan():
    def f(x):
        ref = jax.new_ref(jnp.zeros(3))
        def body(c, i):
            ref[i] = c * x
            return c + 1.0, ref[0]
        return *jax.lax.scan(body, 1.0, jnp.arange(3)), ref[...]
    total = lambda x: f(x)[2].sum()
    return f(2.0), jax.jit(f)(2.0), jax.jvp(total, (2.0,), (1.0,)), jax.grad(total)(2.0), jax.vmap(total)(jnp.ones(2))

@case
def written_in_scan_of_jit():
    ref = jax.new_ref(0.0)
    def body(c, i):
        ref[...] += i
        return c, None
    f = jax.jit(lambda: jax.lax.scan(body, 0, jnp.arange(4.0))[0])
    f(), f()
    return ref[...]

@case
def written_in_fori_loop_and_while_loop():
    a, b = jax.new_ref(jnp.zeros(3)), jax.new_ref(0.0)
    def step(i, c):
        a[i] = c + 1.0
        return c + 1.0
    jax.lax.fori_loop(0, 3, step, 0.0)
    def body(c):
        b[...] += 1.0
        return c + 1
    last = jax.lax.while_loop(lambda c: c < 5, body, 0)
    return a[...], last, b[...]

@case
def written_in_the_condition_of_a_while_loop():
    a, b = jax.new_ref(jnp.zeros(3)), jax.new_ref(0.0)
    def condition(c):
        a[1] += 2.0
        return c < 5
    def body(c):
        b[...] += 1.0
        return c + 1
    last = jax.jit(lambda: jax.lax.while_loop(condition, body, 0))()
    def bounded(c):
        a[2] += 1.0
        return a[2] < 4
    steps = jax.jit(lambda: jax.lax.while_loop(bounded, lambda c: c + 1, 0))()
    return a[...], last, b[...], steps

def parts_of(transform):
    @jax.jit
    def f(k):
        whole = [jax.new_ref(jnp.arange(12.0).reshape(3, 4)) for _ in range(4)]
        def body(row, element, column, part):
            row[...] += 10.0
            element[...] = row[0] * 2
            column[...] *= -1
            part[...] = part[...] + jnp.ones_like(part)
            return row[...].sum() + part[1]
        parts = whole[0].at[1], whole[1].at[k, 2], whole[2].at[:, 3], whole[3].at[0].at[1:3]
        result = transform(body)(*parts)
        return [ref[...] for ref in whole], result
    return f(2)

@case
def parts_as_arguments_of_jit():
    return parts_of(jax.jit)

@case
def parts_as_arguments_of_checkpoint():
    return parts_of(jax.checkpoint)

@case
def parts_as_arguments_of_branches():
    return parts_of(lambda f: lambda *x: jax.lax.cond(True, f, lambda *x: 0.0, *x))

@case
def parts_as_arguments_of_shard_map():
    mesh = jax.make_mesh((1,), ("x",))
    @jax.jit
    def f():
        ref = jax.new_ref(jnp.zeros((2, 3)))
        add = lambda part: part.__setitem__(..., part[...] + jnp.ones_like(part))
        jax.shard_map(add, mesh=mesh, in_specs=jax.P(), out_specs=None)(ref.at[:, 1:])
        return ref[...]
    return f()

@case
def parts_used_in_loops():
    @jax.jit
    def f():
        ref = jax.new_ref(jnp.zeros((2, 3)))
        part = ref.at[1]
        jax.lax.scan(lambda c, x: (part.__setitem__(..., part[...] + x), ())[1:] * 2, (), jnp.arange(4.0))
        return ref[...]
    return f()

@case
def written_in_branches():
    ref = jax.new_ref(0.0)
    def add(x):
        ref[...] += x
        return x
    double = lambda x: 2 * x
    first = jax.lax.cond(True, add, double, 2.0), ref[...]
    second = jax.jit(lambda p: jax.lax.cond(p, add, double, 3.0))
    third = second(True), second(False), ref[...]
    return first, third, jax.lax.switch(2, [double, double, add], 4.0), ref[...]

@case
def read_under_derivatives():
    ref = jax.new_ref(jnp.ones(2))
    f = jax.jit(lambda x: x * x * ref[...].sum())
    steps = lambda x: jax.lax.fori_loop(0, 2, lambda i, c: c * ref[i], x)
    first = jax.grad(f)(2.0), jax.jit(jax.grad(f))(2.0), jax.vmap(f)(jnp.ones(2)), jax.grad(steps)(3.0)
    ref[...] = jnp.full(2, 3.0)
    return first, jax.grad(f)(2.0), jax.jit(jax.grad(f))(2.0), jax.grad(steps)(3.0), jax.vmap(steps)(jnp.ones(2))

@case
def used_by_checkpoint():
    def f(x):
        ref = jax.new_ref(0.0)
        @jax.checkpoint
        def g(x):
            return jnp.sin(x) * x
        ref[...] = g(x)
        return g(ref[...])
    return f(2.0), jax.grad(f)(2.0), jax.jit(jax.grad(f))(2.0)

@case
def operand_of_branch():
    ref = jax.new_ref(jnp.zeros(2))
    def write(r, x):
        r[0] = x
        return x
    return jax.lax.cond(True, write, lambda r, x: r[1], ref, 3.0), ref[...]

@case
def draws():
    rng = random.stateful_rng(42)
    first = rng.uniform(), rng.uniform()
    compiled = jax.jit(rng.uniform)
    more = compiled(), compiled(), rng.integers(0, 10, 3), rng.normal(size=(2,)), rng.random(2), rng.integers(5)
    return first, more, jax.random.key_data(rng.key()), [r.integers(0, 10, 2) for r in rng.spawn(2)]

@case
def draws_with_parameters():
    rng = random.stateful_rng(0)
    wide = rng.uniform(np.zeros(3), 2.0), rng.normal(np.arange(2.0), 3.0), rng.uniform(size=2, dtype="float16")
    return wide, jax.random.key_data(rng.key((2, 2)))

@case
def draws_of_split_generators():
    rng = random.stateful_rng(123)
    return jax.vmap(lambda r, x: x + r.uniform())(rng.split(3), jnp.zeros(3))

@case
def draws_inside_transformations():
    made = jax.jit(lambda s: random.stateful_rng(s).uniform(size=2))(3)
    passed = jax.jit(lambda g: g.uniform())(random.stateful_rng(3))
    gradient = jax.grad(lambda x: random.stateful_rng(0).uniform() * x)(1.0)
    rng = random.stateful_rng(0)
    return made, passed, gradient, jax.lax.scan(lambda c, _: (c, rng.uniform()), 0, None, length=3)[1], rng.uniform()

@case
def given_to_backward_rules():
    @jax.custom_vjp
    def kept(ref, x):
        return x
    def back(ref, g):
        ref[...] = 2 * g + ref[...]
        return None, g
    kept.defvjp(lambda ref, x: (x, ref), back)
    def f(x, ref):
        return 3 * kept(ref, jnp.sin(x))
    found = []
    for function in (f, jax.jit(f)):
        for transform in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: lambda *x: jax.vjp(f, *x)[1](1.0)[0]):
            ref = jax.new_ref(jnp.float32(1))
            found += [transform(function)(jnp.float32(2), ref), ref[...]]
    def layers(x, ref):
        return jax.lax.scan(lambda c, w: (f(c * w, ref), None), x, jnp.arange(1, 4, dtype=jnp.float32))[0]
    for function in (layers, jax.jit(layers), jax.checkpoint(f)):
        for transform in (jax.grad, lambda f: jax.jit(jax.grad(f))):
            ref = jax.new_ref(jnp.float32(1))
            found += [transform(function)(jnp.float32(2), ref), ref[...]]
    return found

@case
def written_under_derivatives():
    found = []
    def f(x, ref):
        ref[...] = 0.5 * ref[...] + jax.lax.stop_gradient(x)
        return jnp.sin(x) * ref[...]
    def loop(x, ref):
        return jax.lax.scan(lambda c, _: (f(c, ref), None), x, None, length=2)[0]
    def branch(x, ref):
        return jax.lax.cond(x > 0, lambda: f(x, ref), lambda: x)
    for function in (f, jax.jit(f), loop, branch):
        for transform in (jax.grad(function), jax.jit(jax.grad(function))):
            ref = jax.new_ref(jnp.float32(1))
            found += [transform(jnp.float32(2), ref), ref[...]]
    return found

@case
def tangents_of_references():
    found = []
    def f(x, ref):
        ref[...] = jnp.sin(ref[...]) * x
        return x + ref[...].sum()
    def loop(x, ref):
        return jax.lax.scan(lambda c, _: (f(c, ref), None), x, None, length=2)[0]
    for function in (f, jax.jit(f), loop):
        ref, tangent = jax.new_ref(jnp.arange(3.0)), jax.new_ref(jnp.ones(3))
        found += [jax.jvp(function, (2.0, ref), (3.0, tangent)), ref[...], tangent[...]]
        pushed = jax.jit(lambda r, t: jax.jvp(lambda r: function(2.0, r), (r,), (t,)))
        found += [pushed(ref, tangent), ref[...], tangent[...]]
    return found

print(json.dumps(found))
"""
CASES = [line.split()[1].partition("(")[0] for line in PROGRAM.split("@case\n")[1:] for line in [line.splitlines()[0]]]


def _run(code: str, *arguments: str) -> str:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *arguments, "-c", code]
    environment = {**os.environ, "PYTHONPATH": paths}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads(_run(PROGRAM, "-m", "tinyxla.jax")), json.loads(_run(PROGRAM))


@pytest.mark.parametrize("name", CASES)
def test_references_agree_with_jax(name: str, results: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found, wanted = (each[name] for each in results)
    assert not isinstance(wanted, str), wanted
    assert not isinstance(found, str), found
    for (kind, value), (wanted_kind, wanted_value) in zip(found, wanted, strict=True):
        assert kind == wanted_kind
        np.testing.assert_allclose(value, wanted_value, 1e-5, 1e-6)


REFUSED = """
import tinyxla.jax
import jax, jax.numpy as jnp
from jax.experimental import random

def refused(function):
    try:
        print(function())
    except TypeError as error:
        print(str(error).splitlines()[0])

ref = jax.new_ref(0.0)
kept = []
refused(lambda: jax.vmap(lambda x: ref.set(x))(jnp.arange(2.0)))
refused(lambda: jax.jit(lambda: jax.new_ref(0.0))())
refused(lambda: jnp.sin(ref))
jax.jit(lambda x: kept.append(jax.new_ref(x)))(1.0)
refused(lambda: jax.jit(lambda: kept[0][...])())
refused(lambda: jax.jit(lambda: random.stateful_rng().uniform())())
refused(lambda: random.stateful_rng(0).split(2).uniform())
same = jax.custom_vjp(lambda x, y: 1.0)
same.defvjp(lambda x, y: (1.0, None), lambda _, g: (None, None))
refused(lambda: same(ref, ref))
refused(lambda: jax.jit(lambda: jax.vmap(lambda x: x[...])(jax.new_ref(jnp.zeros(7)).at[1:6]))())
refused(lambda: jax.lax.cond(True, lambda x: x[...] + ref[...], lambda x: 0.0, ref))
refused(lambda: jax.lax.scan(lambda pair, _: (None, None), (ref, ref), None, length=1))
fresh = jax.custom_vjp(lambda x, r: x)
fresh.defvjp(lambda x, r: (x, {"a": jax.new_ref(0.0)}), lambda _, g: (g, None))
refused(lambda: jax.vjp(fresh, 1.0, ref))
print(ref[...])
print(jax.eval_shape(lambda x: x + ref[...], 1.0).shape)
kept = jax.new_ref(jnp.full(2, 3.0))
scaled = jax.checkpoint(lambda x: x * kept[...].sum())
print(jax.grad(scaled)(2.0), jax.jit(jax.grad(scaled))(2.0))
refused(lambda: jax.jvp(lambda r: r[...], (ref,), (1.0,)))
kept = jax.new_ref(jnp.zeros(2))
compiled = jax.jit(lambda r, x: r.set(r[...] + x)).lower(kept, 1.0).compile()
refused(lambda: compiled(jax.new_ref(jnp.zeros(3)), 1.0))
refused(lambda: compiled(kept, kept))
refused(lambda: compiled(jnp.zeros(2), 1.0))
refused(lambda: jax.export.export(jax.jit(lambda r: r[...]))(kept))
"""


def test_wrong_uses_of_references_are_errors() -> None:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", REFUSED]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert found.returncode == 0, found.stderr
    outer = "A Ref is used inside a transformed function, but was made outside of it; make it inside, or give the array"
    wanted = [
        "A Ref is used inside a batched function (vmap), but was made outside of it",
        "The result of <lambda> is a Ref, made at ",
        "a Ref is not an array; read it with ref[...]",
        outer,
        "stateful_rng: inside a transformed function there must be a seed; pass one.",
        "StatefulPRNG: a generator that was split into several draws nothing; map over it with vmap.",
        "custom_vjp of <lambda>: a Ref is passed twice, as the arguments x and y",
        "vmap of <lambda>: a part of a Ref, such as ref.at[index], is no argument that is mapped over",
        "lax.cond of <lambda>: a Ref is used from around and passed as the argument x",
        "lax.scan of <lambda>: a Ref is passed twice, as the arguments pair[0] and pair[1]",
        "custom_vjp of <lambda>: the residuals['a'] of the forward rule <lambda> have a Ref that is no argument",
        "0.0",
        "()",
        "6.0 6.0",
        "jvp of <lambda>: the tangent of a Ref must be a Ref, and one for each.",
        "A program compiled for [f32[2], f32[]] was called with [f32[3], f32[]]: argument r is f32[3], not f32[2]",
        "<lambda>: a Ref is passed twice, as the arguments r and x",
        "A program compiled for arguments of the structure",
        "export of <lambda>: it reads or writes a Ref, which an exported program does not have",
    ]
    lines = found.stdout.splitlines()
    assert len(lines) == len(wanted), lines
    for line, text in zip(lines, wanted, strict=True):
        assert line.startswith(text)


def test_gradients_are_added_to_references() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        y, pullback = jax.vjp(lambda x, w: jnp.sin(x["a"]) * w, {"a": 0.0}, 3.0)
        total = jax.new_ref(jnp.float32(1))
        back = pullback.with_refs({"a": total}, jax.ad.DontWant())
        print(back(1.0), total[...], jax.jit(lambda: back(2.0)[1])(), total[...])
        print(pullback.with_refs(jax.ad.GradValue(), jax.ad.DontWant())(1.0)[0]["a"])
        try:
            pullback.with_refs(1, 2)(1.0)
        except TypeError as error:
            print(str(error).splitlines()[0])
        """) == [
        "({'a': GradRef()}, DidntWant()) 4.0 DidntWant() 10.0",
        "3.0",
        "vjp of <lambda>: with_refs takes a Ref, GradValue() or DontWant() for each gradient, but got 1.",
    ]


def test_a_function_with_references_of_its_own_in_loops_and_branches_has_a_jaxpr_that_runs() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        from jax import lax
        def looped(x):
            ref = jax.new_ref(x)
            def step(c, i):
                ref[i] += c
                return c * 2, ref[0]
            return *lax.scan(step, 1.0, jnp.arange(3)), ref[...]
        def tested(x):
            ref = jax.new_ref(x)
            def step(c):
                ref[...] *= 2
                return c + 1
            return lax.while_loop(lambda c: ref[0] < 10, step, 0), ref[...]
        def branched(x):
            ref = jax.new_ref(x)
            lax.cond(x[0] > 0, lambda: ref.__setitem__(0, x[1] * x[2]), lambda: None)
            lax.fori_loop(0, 2, lambda i, c: (ref.__setitem__(i, ref[2] * c), c)[1], x[1])
            return ref[...]
        x = jnp.array([1.0, 2.0, 3.0])
        leaves = lambda tree: [leaf.tolist() for leaf in jax.tree.leaves(tree)]
        for f in looped, tested, branched:
            closed = jax.make_jaxpr(f)(x)
            g = lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)
            print(leaves(g(x)) == leaves(jax.jit(g)(x)) == leaves(jax.jit(f)(x)), end=" ")
            print(leaves(jax.jacfwd(lambda x: g(x)[-1])(x)))
        """) == [
        "True [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]",
        "True [[[16.0, 0.0, 0.0], [0.0, 16.0, 0.0], [0.0, 0.0, 16.0]]]",
        "True [[[0.0, 3.0, 2.0], [0.0, 3.0, 2.0], [0.0, 0.0, 1.0]]]",
    ]


def test_references_refuse_values_of_another_kind_and_say_where_they_come_from() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        def said(f, *args):
            try:
                return f(*args)
            except Exception as error:
                return " ".join(str(error).split())
        ref = jax.new_ref(jnp.zeros(3, int))
        print("Ref dtype: int32. Value dtype: float32." in said(ref.__setitem__, ..., 1.5))
        print("cannot hold a value of float32" in said(jax.ref.addupdate, ref, ..., jnp.ones(3)))
        ref[...] = jnp.ones(3, jnp.int8)
        print(ref[...])
        text = said(jax.jit(lambda x_ref: {"hi": x_ref}), ref)
        print("tree path result['hi']" in text, "was passed in as the argument x_ref" in text)
        print("created on line" in said(jax.jit(jax.new_ref), 1.0))
        total = jax.new_ref(jnp.int32(0))
        print("on an unbatched array reference" in said(jax.vmap(lambda v: total.__setitem__(..., v)), jnp.arange(3)))
        sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("i",)), jax.P("i"))
        print(jax.new_ref(jax.device_put(jnp.arange(2), sharding))[...].sharding == sharding)
        """) == ["True", "True", "[1 1 1]", "True True", "True", "True", "True"]


def test_known_integers_outside_of_a_reference_are_errors() -> None:
    """As in JAX, where indices of arrays are clamped."""
    assert printed("""
        import jax, jax.numpy as jnp
        def said(f, *args):
            try:
                return f(*args)
            except IndexError as error:
                return "Out of bound indexer: idx=5, dim=3." in str(error)
        ref = jax.new_ref(jnp.zeros((2, 3)))
        print(said(ref.__getitem__, (0, 5)), said(ref.__setitem__, (..., 5), 1.0))
        print(said(jax.ref.addupdate, ref, (1, 5), 1.0))
        print(said(ref.__getitem__, (0, jnp.array([-1]))), ref[-2, -1], ref[jnp.array(1), :2])
        """) == ["True True", "True", "[0.] 0.0 [0. 0.]"]

"""Random compositions: acyclic graphs of 3 to 12 statements with broadcasting, reductions, indexed updates, products
and control flow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from .programs import Program
from .values import Input

# Statements of earlier values: {a}, {b} any of floats, {v} of rank one at least, {m} of rank two at least.
STATEMENTS = """
    jnp.tanh({a})
    jnp.sin({a}) * 2
    jnp.exp(-{a} ** 2)
    jnp.sqrt({a} ** 2 + 1)
    jnp.log1p({a} ** 2)
    jax.nn.gelu({a})
    jax.nn.softplus({a})
    jax.nn.sigmoid({a}) - 0.5
    {a} / (1 + {b} ** 2)
    {a} + {b}
    {a} - 0.5 * {b}
    {a} * {b}
    jnp.arctan2({a}, 2 + {b} ** 2)
    jnp.maximum({a}, {b})
    jnp.minimum({a}, 0.3)
    jnp.where({a} > {b}, {a}, jnp.cos({b}))
    jnp.where({a} > 0, 1.5, {a} * 2)
    jnp.clip({a}, -1.0, 0.75)
    jnp.sign({a}) * {b}
    jnp.abs({a})
    jnp.floor({a}) + {a}
    {v}.sum()
    {v}.sum(axis=-1)
    {v}.mean(axis=0, keepdims=True)
    {v}.max(axis=-1, keepdims=True)
    {v}.min(axis=0)
    jnp.concatenate([{v}, {v} + 4.5], axis=-1).std(axis=-1, keepdims=True)
    jnp.cumsum({v}, axis=-1)
    jnp.cumprod(jnp.tanh({v}), axis=0)
    jnp.sort({v}, axis=-1)
    jnp.argsort({v}, axis=0).astype({a}.dtype)
    jnp.flip({v}, axis=0)
    jnp.roll({v}, 1, axis=-1)
    jnp.concatenate([{v}, {v} * 2], axis=0)
    jnp.stack([{a}, -{a}])
    jnp.pad({v}, [(1, 2)] + [(0, 0)] * ({v}.ndim - 1))
    jnp.tile({v}, 2)
    jnp.repeat({v}, 2, axis=-1)
    jnp.expand_dims({a}, 0)
    jnp.squeeze({a}[None])
    jnp.reshape({a}, (-1,))
    jnp.diff({v}, axis=-1)
    jnp.take({v}, np.array([0, -1, 0]), axis=0)
    {v}[..., ::-1]
    {v}[-1]
    {v}[1:]
    {v}[..., None]
    {v}.at[0].set(0.5)
    {v}.at[..., -1].add(2.0)
    {v}.at[np.array([0, 0])].add({v}[0] * 3)
    {v}.at[0].multiply(0.5)
    {v}.at[0].max(0.1)
    jnp.swapaxes({m}, -1, -2)
    {m}.T
    jnp.moveaxis({m}, 0, -1)
    {m} @ jnp.swapaxes({m}, -1, -2)
    jnp.einsum('...ij->...i', {m})
    jnp.einsum('...ij,...ij->...j', {m}, {m})
    jnp.tensordot({v}, {v}, axes=([0], [0]))
    jnp.outer({v}[..., 0], {v}[..., -1])
    jnp.tril({m})
    jnp.diagonal({m}, axis1=-2, axis2=-1)
    jnp.linalg.norm({v} + 4.5, axis=-1, keepdims=True)
    jnp.vdot({a}, {a})
    jax.nn.softmax({v}, axis=-1)
    jax.nn.log_softmax({v}, axis=0)
    jax.nn.logsumexp({v}, axis=-1, keepdims=True)
    jax.nn.one_hot(jnp.argmax({v}, axis=-1), 3, dtype={v}.dtype)
    lax.stop_gradient({a}) * {b}
    lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c) + 0.1 * i, {a})
    lax.scan(lambda c, u: (0.5 * c + u, c), {v}[0] * 0, {v})[1]
    lax.scan(lambda c, u: (jnp.sin(c) + u.sum(), c * u), {v}.sum(), {v})[1]
    lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5 + 0.1), (0, {a}))[1]
    lax.cond({a}.sum() > 0.03125, lambda u: u * 2, lambda u: jnp.sin(u), {b})
    lax.switch(1, [lambda u: u, lambda u: u * 3], {a})
    lax.map(lambda u: u * jnp.tanh(u).sum(), {v})
    lax.cummax({v}, axis=0)
    lax.associative_scan(jnp.add, {v})
    lax.dynamic_slice_in_dim({v}, 0, 1)
    lax.dynamic_update_slice_in_dim({v}, {v}[:1] * 2, 0, 0)
    lax.reduce_window({v}, 0.0, lax.add, (1,) * ({v}.ndim - 1) + (2,), (1,) * {v}.ndim, 'SAME')
    lax.rev({v}, (0,))
    lax.top_k({v}, 1)[0]
    jax.vmap(lambda u: u / (1 + (u ** 2).sum()))({v})
    jax.checkpoint(lambda u: jnp.tanh(u) * u)({a})
    jax.jit(lambda u, w: u + jnp.cos(w))({a}, {b})
    jax.grad(lambda u: (u ** 3).sum())({a})
    jax.jvp(jnp.sin, ({a},), ({a},))[1]
    jnp.real(jnp.fft.ifft(jnp.fft.fft({v})))
    jnp.fft.rfft({v}).real
    jnp.convolve({v}.reshape(-1), np.array([1.0, 0.5], {v}.dtype), mode='same')
    jnp.interp({a}, np.array([-1.0, 0.0, 2.0], {a}.dtype), np.array([0.0, 1.0, 0.5], {a}.dtype))
    jnp.searchsorted(np.array([-1.0, 0.0, 2.0], {a}.dtype), {a}).astype({a}.dtype) * {a}
    jnp.linalg.solve({m}[..., :1, :1] ** 2 + 1, {m}[..., :1, :])
    jnp.median({v}, axis=-1)
    jnp.prod(jnp.cos({v}), axis=0)
    jnp.var({v})
    ({a} > 0.2).astype({a}.dtype) + {a}
    jnp.round({a} * 4).astype('int32').astype({a}.dtype) * 0.25
    jax.scipy.special.erf({a})
    jnp.logaddexp({a}, {b})
    jnp.hypot({a}, {b} + 2)
    lax.stop_gradient(jnp.nan_to_num({a} / {b}, posinf=9, neginf=-9)) * {a}
    jnp.power({a} ** 2 + 0.5, {b})
    jnp.mod({a}, 1.5)
    {a} ** 3
    """.strip().split("\n    ")

_SHAPES = ((), (3,), (4,), (3, 4), (4, 4), (2, 3, 4), (1, 4), (1,), (33,), (5, 33))
_LARGEST = 3000


def composition(random: np.random.Generator, x64: bool) -> Program:
    """A random acyclic graph of statements; its results are a few of the values that nothing uses."""
    dtype = "float64" if x64 and random.random() < 0.7 else "float32"
    inputs = tuple(Input(dtype, _SHAPES[random.integers(len(_SHAPES))], "finite") for _ in range(random.integers(1, 4)))
    values: dict[str, Any] = {f"x{i}": jax.ShapeDtypeStruct(g.shape, dtype) for i, g in enumerate(inputs)}
    lines: list[str] = []
    for _ in range(int(random.integers(3, 13)) * 3):
        statement = _filled(STATEMENTS[random.integers(len(STATEMENTS))], values, random)
        result = None if statement is None else _shape_of(statement, values)
        if result is not None:
            name = f"t{len(lines)}"
            lines.append(f"{name} = {statement}")
            values[name] = result
        if len(lines) == 12:
            break
    return _program(inputs, lines, x64)


def _program(inputs: tuple[Input, ...], lines: list[str], x64: bool) -> Program:
    used = set(re.findall(r"\bt\d+\b", "\n".join(line.partition(" = ")[2] for line in lines)))
    unused = [f"t{i}" for i in range(len(lines)) if f"t{i}" not in used]
    body = [
        "jnp, lax = jx.numpy, jx.lax",
        *(re.sub(r"\bjax\.", "jx.", x) for x in lines),
        f"return [{', '.join(unused)}]",
    ]
    return Program("composition", "".join(f"    {line}\n" for line in body), inputs, x64)


def prefixes(program: Program) -> list[Program]:
    """The program cut after each statement, with that statement alone as its result, named after it."""
    lines = program.body.splitlines()[1:-1]
    return [
        program._replace(
            name=f"composition: {re.sub(r'x[0-9]+|t[0-9]+', '_', lines[i].partition(' = ')[2])}",
            body="\n".join([program.body.splitlines()[0], *lines[: i + 1], f"    return t{i}"]) + "\n",
        )
        for i in range(len(lines))
    ]


def with_all_values(program: Program) -> Program:
    """The program whose result is a dictionary of the values of all its statements."""
    head, *lines, _ = program.body.splitlines()
    names = [line.split()[0] for line in lines]
    body = [head, *lines, f"    return {{{', '.join(f'{name!r}: {name}' for name in names)}}}"]
    return program._replace(body="".join(f"{line}\n" for line in body))


def results_of(program: Program) -> list[str]:
    """The names of the values that a composition returns."""
    return re.findall(r"\bt\d+\b", program.body.splitlines()[-1])


def statements(program: Program) -> Iterator[tuple[str, Callable[[dict[str, Any]], Any]]]:
    """The name of each value, and JAX's function of the values before it."""
    space = {"jx": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np}
    for line in program.body.splitlines()[1:-1]:
        name, _, expression = line.strip().partition(" = ")
        yield name, lambda known, source=expression: eval(source, {**space, **known})


def _filled(statement: str, values: dict[str, Any], random: np.random.Generator) -> str | None:
    """The statement with values for its operands: mostly the latest ones."""
    chosen: dict[str, str] = {}
    for slot in sorted(set(re.findall(r"\{([abvm])\}", statement))):  # the same program in every process
        rank = {"v": 1, "m": 2}.get(slot, 0)
        fitting = [n for n, s in values.items() if len(s.shape) >= rank]
        if not fitting:
            return None
        recent = fitting[-3:] if random.random() < 0.7 else fitting
        chosen[slot] = recent[random.integers(len(recent))]
    return re.sub(r"\{([abvm])\}", lambda m: chosen[m.group(1)], statement)


def _shape_of(statement: str, values: dict[str, Any]) -> Any:
    """The shape and type of a statement's result, or None if the statement cannot be."""
    names = sorted(set(re.findall(r"\b[xt]\d+\b", statement)))
    function = eval(f"lambda {', '.join(names)}: {statement}", {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np})
    try:
        result = jax.eval_shape(function, *(values[n] for n in names))
    except (TypeError, ValueError, IndexError):
        return None
    size = int(np.prod(result.shape))
    return result if 0 < size <= _LARGEST and jax.numpy.issubdtype(result.dtype, jax.numpy.floating) else None

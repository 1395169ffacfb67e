"""Products of bf16 and of integers of 8 bits in a processor's matrix unit, and without it: in memory that ends where an
array does, against NumPy."""

from __future__ import annotations

import mmap
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tests.support.guarded_memory import Guard
from tests.support.matrix_unit import FACTORS
from tinyxla import lax
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir import target
from tinyxla.loopir.kernels.gemm.amx import amx_microkernel
from tinyxla.loopir.kernels.gemm.arithmetic import choose_arithmetic
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS
from tinyxla.shapes import element_type

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="pages are protected by mprotect(2)")

jax: Any = pytest.importorskip("jax")
llvm: Any = pytest.importorskip("llvmlite.binding")
Array = np.ndarray[Any, Any]
SUMS = {"bf16": "f32", "s8": "s32", "u8": "u32"}


@pytest.fixture(params=["permitted", "refused"])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the matrix unit is used, of which the compiler asks each time; programs have guarded memory."""
    Guard(monkeypatch)
    if request.param == "refused":
        monkeypatch.setattr("tinyxla.loopir.kernels.gemm.arithmetic.has_tiles", lambda: False)
        return False
    if not target.has_tiles():
        pytest.skip("this processor has no matrix unit, or it may not be used")
    return True


def _numbers(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Integers up to the ends of their type, so that sums are large."""
    dtype = element_type(name).dtype
    if name == "bf16":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def _check(found: Any, exact: Array, terms: int) -> None:
    found = np.asarray(found)
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, exact.astype(found.dtype))
    else:
        np.testing.assert_allclose(found, exact, 0, 1e-6 * terms**0.5 * np.max(np.abs(exact), initial=1))


def _product(name: str, spec: str) -> Any:
    """Of operands with such dimensions: all k, and b if both have it."""
    left, right = spec.split("->")[0].split(",")
    batch = ((left.index("b"),), (right.index("b"),)) if "b" in left and "b" in right else ((), ())
    dims = ((left.index("k"),), (right.index("k"),)), batch
    wide = element_type(SUMS[name]).dtype
    return tinyxla.jit(lambda x, y: lax.dot_general(x, y, dims, preferred_element_type=wide))


def _exact(spec: str, x: Array, y: Array) -> Array:
    kind = np.int64 if x.dtype.kind in "iu" else np.float64
    return np.einsum(spec, x.astype(kind), y.astype(kind))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("spec", ["mk,kn->mn", "km,kn->mn", "mk,nk->mn", "km,nk->mn", "bmk,bkn->bmn", "bkm,kn->bmn"])
def test_products(unit: bool, name: str, spec: str, generator: np.random.Generator) -> None:
    sizes = [tuple(map(int, generator.integers(1, 71, 3))) for _ in range(5)]
    for m, n, k in (*sizes, (1, 300, 65), (200, 33, 31), (40, 129, 64), (97, 7, 1100)):
        of = {"m": m, "n": n, "k": k, "b": 3}
        x, y = (_numbers(generator, name, tuple(of[c] for c in part)) for part in spec.split("->")[0].split(","))
        _check(_product(name, spec)(x, y), _exact(spec, x, y), k)


@pytest.mark.parametrize("name", SUMS)
def test_many_chunks_of_many_blocks(unit: bool, name: str, generator: np.random.Generator) -> None:
    for spec in ("mk,kn->mn", "km,nk->mn"):
        for m, n, k in ((260, 190, 2100), (400, 500, 70), (16, 24, 20_000)):
            shapes = ((m, k), (k, n)) if spec[0] == "m" else ((k, m), (n, k))
            x, y = (_numbers(generator, name, shape) for shape in shapes)
            _check(_product(name, spec)(x, y), _exact(spec, x, y), k)


@pytest.mark.parametrize("name", SUMS)
def test_parts_of_arrays(unit: bool, name: str, generator: np.random.Generator) -> None:
    """Which begin anywhere, and whose rows are further apart than they are long."""
    x, y = _numbers(generator, name, (70, 131)), _numbers(generator, name, (131, 90))
    found = _product(name, "mk,kn->mn")(x[3:, 1:66:2], y[2:35, 5::2])
    _check(found, _exact("mk,kn->mn", x[3:, 1:66:2], y[2:35, 5::2]), 33)


def test_a_matrix_by_its_transpose_is_exactly_symmetric(unit: bool, generator: np.random.Generator) -> None:
    x = _numbers(generator, "bf16", (300, 77))
    wide = np.float32
    found = np.asarray(tinyxla.jit(lambda x: lax.dot(x, x.T, preferred_element_type=wide))(x))
    np.testing.assert_array_equal(found, found.T)
    _check(found, _exact("mk,nk->mn", x, x), 77)


@pytest.mark.parametrize(("m", "n", "k"), [(37, 45, 33), (70, 130, 65), (33, 34, 3)])
def test_rows_columns_and_terms_do_not_meet(unit: bool, m: int, n: int, k: int) -> None:
    """Parts of tiles hold zeros, or what does not matter."""
    kind = element_type("bf16").dtype
    x, y = np.ones((m, k), kind), np.ones((k, n), kind)
    x[3], x[-1], y[:, 0], y[:, -1] = np.nan, np.inf, np.nan, np.inf
    for x_here, y_here, spec in ((x, y, "mk,kn->mn"), (x.T.copy(), y.T.copy(), "km,nk->mn")):
        found = np.asarray(_product("bf16", spec)(x_here, y_here))
        clean = np.ones_like(found, bool)
        clean[[3, -1]] = clean[:, [0, -1]] = False
        assert (found[clean] == k).all()
        assert (found[-1, 1:-1] == np.inf).all()
        assert (found[np.arange(m) % (m - 1) != 3, -1][1:-1] == np.inf).all()
        assert np.isnan(found[3]).all()


def test_bits_do_not_depend_on_threads(unit: bool, generator: np.random.Generator) -> None:
    x, y = _numbers(generator, "bf16", (300, 700)), _numbers(generator, "bf16", (700, 200))
    found: list[bytes] = []
    for count in (1, 2, 3):
        with tinyxla.num_threads(count):
            found.append(np.asarray(_product("bf16", "mk,kn->mn")(x, y)).tobytes())
    assert len(set(found)) == 1


def _convolution(random: np.random.Generator) -> tuple[list[Array], dict[str, Any]]:
    rank, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 2, 3]))
    inputs, features = int(random.choice([2, 5, 20, 32, 34, 64])), int(random.choice([4, 17, 32, 70, 130])) * groups
    sizes, window = random.integers(4, 10, rank).tolist(), random.integers(1, 5, rank).tolist()
    spatial, batch = "DHW"[-rank:], int(random.integers(1, 4))
    order = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    shapes = [(batch, *sizes, inputs * groups), (*window, inputs, features)]
    if random.integers(0, 2):
        order = (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}")
        shapes = [(batch, inputs * groups, *sizes), (features, inputs, *window)]
    has_holes = random.integers(0, 3) == 0
    return [_numbers(random, "bf16", shape) for shape in shapes], {
        "window_strides": [1] * rank if has_holes else random.integers(1, 3, rank).tolist(),
        "padding": [tuple(random.integers(0, 3, 2).tolist()) for _ in range(rank)],
        "lhs_dilation": random.integers(1, 4, rank).tolist() if has_holes else None,
        "rhs_dilation": random.integers(1, 3, rank).tolist(),
        "dimension_numbers": order,
        "feature_group_count": groups,
    }


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(12))
def test_convolutions(unit: bool, seed: int) -> None:
    """And what is computed of their results tile by tile."""
    operands, how = _convolution(np.random.default_rng(seed))
    exact = np.asarray(jax.lax.conv_general_dilated(*(x.astype(np.float32) for x in operands), **how))

    def convolved(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(x, y, preferred_element_type=np.float32, **how)

    terms = operands[1].size
    _check(tinyxla.jit(convolved)(*operands), exact, terms)
    found = tinyxla.jit(lambda x, y: jnp.maximum(2 * convolved(x, y) + 1, 0))(*operands)
    _check(found, np.maximum(2 * exact + 1, 0), terms)


def test_where_it_is_used(unit: bool) -> None:
    for name, result in SUMS.items():
        assert choose_arithmetic(name, result, 64, 64, 256).uses_amx == unit  # pyright: ignore[reportOptionalMemberAccess]
        assert not choose_arithmetic(name, result, 3, 3, 3).uses_amx  # pyright: ignore[reportOptionalMemberAccess]
    assert not choose_arithmetic("s16", "s32", 64, 64, 256).uses_amx  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.skipif(not target.is_x86(), reason="LLVM may know x86 alone on x86")
@pytest.mark.parametrize(("factors", "product"), [("bf16", "tdpbf16ps"), ("s8", "tdpbssd"), ("u8", "tdpbuud")])
def test_assembly_of_the_loops_along_k(factors: str, product: str) -> None:
    """For a processor with the unit: of 2 x 2 tiles and less, each is loaded once, and sums stay in registers."""
    kernel = amx_microkernel(factors, FACTORS[factors], MICROKERNEL_ARGUMENTS)
    module = llvm.parse_assembly(engine.kernel_text(kernel, is_builtin=True, is_routine=True))
    module.verify()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="sapphirerapids", opt=2)
    assembly = machine.emit_assembly(module)
    loops = re.findall(r"^(\.LBB\w+):\n((?:\t.*\n)*?\tj\w+\t\1)$", assembly, re.MULTILINE)
    instructions = ("tileloadd", product, "tilestored")
    found = [[body.count(x) for x in instructions] for _, body in loops if product in body]
    assert sorted(found) == [[2, 1, 0], [3, 2, 0], [3, 2, 0], [4, 4, 0]]
    counts = {x: assembly.count(f"\t{x}\t") for x in ("ldtilecfg", "tilezero", "tilestored", product)}
    assert counts == {"ldtilecfg": 1, "tilezero": 9, "tilestored": 9, product: 9}
    assert assembly.count("\ttilerelease\n") == 1


@pytest.mark.skipif(not target.has_feature("amx-tile"), reason="this processor has no matrix unit")
@pytest.mark.parametrize(
    ("platform", "refusal", "expected"), [("linux", -1, False), ("linux", 0, True), ("win32", 0, False)]
)
def test_permission(monkeypatch: pytest.MonkeyPatch, platform: str, refusal: int, expected: bool) -> None:
    class Request:
        argtypes, restype = (), None

        def __call__(self, *arguments: int) -> int:
            return refusal

    monkeypatch.setattr(target.sys, "platform", platform)
    monkeypatch.setattr(target.ctypes, "CDLL", lambda name: SimpleNamespace(syscall=Request()))
    assert target.has_tiles.__wrapped__() == expected

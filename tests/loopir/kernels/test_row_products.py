"""Products of few rows with rows of another matrix, compiled: against NumPy, with guarded memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tests.support.guarded_memory import Guard
from tinyxla.loopir.kernels.gemm import dot_product

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="pages are protected by mprotect(2)")

Array = np.ndarray[Any, Any]
EQUATIONS = (
    "ik,jk->ij",
    "jk,ik->ji",
    "ki,jk->ij",
    "jk,ki->ji",
    "bik,bjk->bij",
    "ik,bjk->bij",
    "bki,bjk->bij",
)


def _operands(random: np.random.Generator, equation: str, type: str, **sizes: int) -> list[Array]:
    parts = equation.split("->")[0].split(",")
    return [random.standard_normal([sizes[x] for x in part]).astype(type) for part in parts]


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The products that are lowered so."""
    found: list[Any] = []
    kernels = dot_product.kernels
    monkeypatch.setattr(dot_product, "kernels", lambda *given: found.append(given[0]) or kernels(*given))
    return found


def _agree(k: int, equation: str, operands: Any, monkeypatch: pytest.MonkeyPatch, lowered: list[Any]) -> None:
    """The product is this nest's, and NumPy's in f64 up to what sums of k terms are rounded by."""
    Guard(monkeypatch)
    with tinyxla.enable_x64(True):
        found = np.asarray(tinyxla.jit(lambda x, y: jnp.einsum(equation, x, y))(*operands))
    assert lowered
    expected = np.einsum(equation, *(x.astype("d") for x in operands))
    assert found.dtype == operands[0].dtype
    np.testing.assert_allclose(found, expected, 0, 4 * k * float(np.finfo(found.dtype).eps))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("type", ["f", "d"])
@pytest.mark.parametrize(("few", "many", "k"), [(2, 130, 33), (3, 129, 64), (4, 301, 100), (7, 128, 97), (8, 140, 65)])
def test_few_rows(
    generator: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    lowered: list[Any],
    equation: str,
    type: str,
    few: int,
    many: int,
    k: int,
) -> None:
    _agree(k, equation, _operands(generator, equation, type, i=few, j=many, k=k, b=3), monkeypatch, lowered)


@pytest.mark.parametrize("equation", ["jk,k->j", "k,jk->j", "ik,jk->ij", "jk,ik->ji", "bjk,bk->bj", "bjk,k->bj"])
@pytest.mark.parametrize("type", ["f", "d"])
@pytest.mark.parametrize(("many", "k"), [(32, 256), (301, 513)])
def test_a_single_row(
    generator: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    lowered: list[Any],
    equation: str,
    type: str,
    many: int,
    k: int,
) -> None:
    """A vector, too, whatever it is taken for."""
    _agree(k, equation, _operands(generator, equation, type, i=1, j=many, k=k, b=3), monkeypatch, lowered)


def test_bits_do_not_depend_on_threads(generator: np.random.Generator, lowered: list[Any]) -> None:
    function, operands = tinyxla.jit(lambda x, y: x @ y.T), _operands(generator, "ik,jk->ij", "f", i=5, j=1001, k=700)
    found: list[bytes] = []
    for count in (1, 2, 3):
        with tinyxla.num_threads(count):
            found.append(np.asarray(function(*operands)).tobytes())
    assert lowered
    assert len(set(found)) == 1


def test_rows_do_not_meet(lowered: list[Any]) -> None:
    """Of one more than tiles have, and of a last term that is alone in its vector."""
    x, y = np.ones((5, 65), np.float32), np.ones((49, 65), np.float32)
    x[4, 64], y[48, 64], y[3, 0] = np.nan, np.inf, np.nan
    found = np.asarray(tinyxla.jit(lambda x, y: x @ y.T)(x, y))
    assert lowered
    np.testing.assert_array_equal(found, x @ y.T)


def test_a_matrix_by_its_transpose_is_exactly_symmetric(generator: np.random.Generator, lowered: list[Any]) -> None:
    (x,) = _operands(generator, "ik", "f", i=32, k=300)
    found = np.asarray(tinyxla.jit(lambda x: x @ x.T)(x))
    assert lowered
    np.testing.assert_array_equal(found, found.T)

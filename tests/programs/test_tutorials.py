"""What the tutorials of JAX teach that is more than a program with the same results: what is printed, and what goes
beyond JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tinyxla
import tinyxla as tx
from tests.programs.tutorials_derivatives import logistic
from tests.programs.tutorials_host import printing
from tinyxla.test_util import check_grads


def test_checks_by_differences() -> None:
    w, b = tx.numpy.array([0.3, -1.0, 0.5]), tx.numpy.float32(0.3)
    loss = logistic(tx)
    check_grads(loss, (w, b), order=2, modes=["fwd", "rev"], atol=2e-2, rtol=2e-2)
    step = 1e-2
    by_b = (loss(w, b + step / 2) - loss(w, b - step / 2)) / step
    assert abs(by_b - tx.grad(loss, 1)(w, b)) < 1e-3

    @tx.custom_jvp
    def wrong(x: Any) -> Any:
        return x**2

    wrong.defjvp(lambda x, t: (x[0] ** 2, 3 * x[0] * t[0]))
    with pytest.raises(AssertionError):
        check_grads(wrong, (1.0,), order=1, modes=["fwd"])


def test_the_reverse_mode_takes_loops_of_any_length() -> None:
    """Where JAX's does not: the square root by steps of Newton's, until it is found."""

    def root(a: Any) -> Any:
        def goes_on(x: Any) -> Any:
            return abs(x * x - a) > 1e-5

        return tx.lax.while_loop(goes_on, lambda x: (x + a / x) / 2, a)

    for gradient in (
        tx.grad(root),
        tx.jit(tx.grad(root)),
        tx.jacfwd(root),
        lambda a: tx.vmap(tx.grad(root))(a[None])[0],
    ):
        np.testing.assert_allclose(gradient(tx.numpy.float32(2)), 0.5 / np.sqrt(2), rtol=1e-4)


@pytest.mark.parametrize("name", printing)
def test_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines may come in another order where none was asked for."""
    run, (x,), _ = printing[name]
    outputs = []
    for package in (tinyxla, jax):
        capsys.readouterr()
        run(package, package.numpy.asarray(x))
        outputs.append(capsys.readouterr().out.splitlines())
    mine, theirs = outputs
    assert sorted(mine) == sorted(theirs)
    assert [x for x in mine if x[1:] == " 5"] == ["0 5", "1 5", "2 5"] or "0 5" not in theirs

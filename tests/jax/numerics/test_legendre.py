"""Associated Legendre functions under the hook, compared with JAX's."""

from __future__ import annotations

import json
import textwrap

import numpy as np
import pytest

from tests.jax.test_jax_hook import lines as printed

pytest.importorskip("jax")

VALUES = """
    import json, warnings
    warnings.simplefilter("ignore")
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import lpmn_values

    z = jnp.linspace(-1, 1, 5)
    found = [lpmn_values(n, n, z, is_normalized) for n in (0, 4) for is_normalized in (True, False)]
    found += [jax.jacrev(lambda z: lpmn_values(3, 3, z[None], True))(z[1])]
    """
REFUSED = """
    for m, n, z in [(1, 2, jnp.ones(2)), (1, 1, jnp.ones((2, 2))), (1, 1, jnp.ones(2, int))]:
        try:
            lpmn_values(m, n, z, True)
        except ValueError as error:
            print(str(error).splitlines()[0])
    """


def test_values_and_derivatives_are_those_of_jax() -> None:
    program, names = textwrap.dedent(VALUES), {}
    exec(program, names)
    lines = printed(program + "print(json.dumps([x.tolist() for x in found]))\n" + textwrap.dedent(REFUSED))
    for found, expected in zip(json.loads(lines[0]), names["found"], strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * scale)
    assert [line.partition(": ")[2] for line in lines[1:]] == [
        "m and n are one integer from 0 on, but got 1 and 2.",
        "z must be a vector, but has the shape (2, 2).",
        "z must be float32 or float64, but is int32.",
    ]

"""Programs as users of JAX write them: each takes the package, `jax` or `tinyxla`, and gives the same with both."""

from __future__ import annotations

import pytest

from tests.programs import algorithms, fields, research, tutorials, tutorials_derivatives, tutorials_host
from tests.programs.harness import check

PROGRAMS = {
    f"{module.__name__.rpartition('.')[2]}-{name}": program
    for module in (algorithms, fields, research, tutorials, tutorials_derivatives, tutorials_host)
    for name, program in module.programs.items()
}


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name])

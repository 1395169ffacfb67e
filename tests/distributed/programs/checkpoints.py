"""Sharded checkpoints among processes. The last line printed is the number of cases.

`python -m tests.distributed.programs.checkpoints save|load FOLDER` saves there, or loads what other processes saved.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import PytreeError

P = tx.P
VALUES: dict[str, Any] = {
    "rows": np.arange(64, dtype=np.float32).reshape(8, 8),
    "columns": np.arange(64).reshape(8, 8) * (1 + 2j),
    "copied": np.arange(8) % 3 == 0,
}
SPECS = {"rows": P("x"), "columns": P(None, "x"), "copied": P()}


def tree(mesh: tx.Mesh, add: int = 0) -> dict[str, Any]:
    """Arrays with shardings, keys, and what is no sharded array."""
    keys = jnp.asarray(tx.random.key_data(tx.random.split(tx.random.key(5), 8)))
    sharded = {
        name: tx.device_put(jnp.asarray(VALUES[name] + add if name == "rows" else VALUES[name]), at(mesh, spec))
        for name, spec in SPECS.items()
    }
    keys = tx.random.wrap_key_data(tx.device_put(keys, at(mesh, P("x"))))
    return {**sharded, "keys": keys, "step": 3, "local": jnp.ones(3)}


def at(mesh: tx.Mesh, spec: Any) -> tx.NamedSharding:
    return tx.NamedSharding(mesh, spec)


def save(path: Path, mesh: tx.Mesh) -> int:
    tx.save(path, tree(mesh, 1))
    tx.save(path, tree(mesh))
    count = tx.distributed.process_count()
    assert len(list(path.iterdir())) == count + 1, list(path.iterdir())

    is_last = tx.distributed.process_index() == count - 1
    where = path.with_name("missing") / "x" if is_last else path
    with pytest.raises((OSError, tx.errors.ProcessError)):  # the last process cannot write
        tx.save(where, tree(mesh, 2))
    more = {"more": jnp.ones(2)} if tx.distributed.process_index() else {}
    with pytest.raises(tx.errors.ProcessError, match="save trees whose arrays have different names"):
        tx.save(path, {**tree(mesh, 2), **more})
    check(tx.load(path, like=tree(mesh)), mesh)
    left = [file.name for file in path.iterdir()]
    assert len(left) == count + 1, left
    return 3


def load(path: Path, mesh: tx.Mesh) -> int:
    whole = tx.load(path)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(whole[name], np.asarray(jnp.asarray(value)))
    check(tx.load(path, like=tree(mesh)), mesh)
    other = {
        name: tx.ShapeDtypeStruct(whole[name].shape, whole[name].dtype, sharding=at(mesh, P("x"))) for name in SPECS
    }
    found = tx.load(path, like={**whole, **other})
    for name in SPECS:
        assert tx.device_count() == 1 or found[name].sharding == at(mesh, P("x"))
        np.testing.assert_array_equal(tx.reshard(found[name], at(mesh, P())), whole[name])
    with pytest.raises(PytreeError, match="is a dict of"):
        tx.load(path, like=other)
    return 4


def check(found: dict[str, Any], mesh: tx.Mesh) -> None:
    assert found["step"] == 3
    for name, spec in SPECS.items():
        if tx.device_count() > 1:
            assert found[name].sharding == at(mesh, spec)
        np.testing.assert_array_equal(tx.reshard(found[name], at(mesh, P())), np.asarray(jnp.asarray(VALUES[name])))
    words = tx.reshard(tx.random.key_data(found["keys"]), at(mesh, P()))
    np.testing.assert_array_equal(words, tx.random.key_data(tx.random.split(tx.random.key(5), 8)))


def main() -> None:
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), ("x",))
    run = {"save": save, "load": load}[sys.argv[1]]
    print(f"{run(Path(sys.argv[2]), mesh)} cases\n", end="")


if __name__ == "__main__":
    main()

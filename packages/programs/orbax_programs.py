"""Checkpoints of orbax and of flax, and JAX's own of arrays."""

import tempfile

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from flax.training import checkpoints, train_state
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
from jax.sharding import NamedSharding, PartitionSpec

TREE = {"a": jnp.arange(6.0).reshape(2, 3), "b": [np.arange(3), jnp.ones((), jnp.bfloat16)], "n": 5}
SHARDING = NamedSharding(jax.make_mesh((1,), ("x",)), PartitionSpec("x"))


def trees():
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{folder}/tree", TREE)
        checkpointer.wait_until_finished()
        types = jax.tree.map(ocp.utils.to_shape_dtype_struct, TREE)
        return checkpointer.restore(f"{folder}/tree"), checkpointer.restore(f"{folder}/tree", types)


def steps():
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2)
    with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder, options=options) as manager:
        for step in range(7):
            manager.save(step, args=ocp.args.StandardSave({"w": jax.device_put(jnp.full(3, 0.5 * step), SHARDING)}))
        manager.wait_until_finished()
        types = {"w": jax.ShapeDtypeStruct((3,), jnp.float32, sharding=SHARDING)}
        return manager.all_steps(), manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(types))


def models():
    model = nn.Dense(3)
    params = model.init(jax.random.key(0), jnp.ones((1, 2)))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-2))
    state = state.apply_gradients(grads=params)
    graph, arrays = nnx.split(nnx.Linear(3, 4, rngs=nnx.Rngs(0)))
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpoints.save_checkpoint(folder, state, step=1)
        checkpointer.save(f"{folder}/nnx", arrays)
        checkpointer.wait_until_finished()
        found = checkpoints.restore_checkpoint(folder, state)
        abstract = nnx.state(nnx.eval_shape(lambda: nnx.Linear(3, 4, rngs=nnx.Rngs(0))))
        linear = nnx.merge(graph, checkpointer.restore(f"{folder}/nnx", abstract))
    return found.params, found.opt_state, found.step, linear(jnp.ones((1, 3)))


def arrays_in_threads():
    manager, ended = GlobalAsyncCheckpointManager(), []
    arrays = [jax.device_put(x, SHARDING) for x in (jnp.arange(4), jnp.ones((2, 3), jnp.bfloat16))]
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{k}" for k in range(2)]
        manager.serialize_with_paths(arrays, paths, on_commit_callback=lambda: ended.append(1))
        manager.wait_until_finished()
        manager.check_for_errors()
        found = manager.deserialize_with_paths([SHARDING] * 2, paths)
        wider = manager.deserialize_with_paths([SHARDING] * 2, paths, [(6,), (2, 2)], [jnp.float32] * 2)
    return found, wider, ended


PROGRAMS = [trees, steps, models, arrays_in_threads]

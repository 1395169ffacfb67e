"""`jax.experimental.multihost_utils`: there is one process."""

from tinyxla import tree


def sync_global_devices(name):
    """Waits for all processes: there is one."""


def process_allgather(in_tree, tiled=False):
    """The arrays of all processes, stacked along a new first axis, or with `tiled` the arrays as they are."""
    return in_tree if tiled else tree.map(lambda x: x[None], in_tree)


def broadcast_one_to_all(in_tree, is_source=None):
    """The arrays of the first process."""
    return in_tree


def assert_equal(in_tree, fail_message=""):
    """Checks that all processes have the same arrays: there is one."""

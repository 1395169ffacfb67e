"""`jax._src.tree_util`."""

from tinyxla.errors import PytreeError as _PytreeError
from tinyxla.jax.pytrees.registry import Registry as _Registry
from tinyxla.jax.pytrees.treedefs import *  # noqa: F403
from tinyxla.tree_util import *  # noqa: F403
from tinyxla.tree_util import _difference, tree_structure as _tree_structure

_registry = _Registry()


def prefix_errors(prefix_tree, full_tree, is_leaf=None):
    """Where a tree that may stop earlier departs from another: a list of functions from its name to the error."""
    treedef = _tree_structure(prefix_tree, is_leaf)

    def error(name):
        difference = _difference(treedef, prefix_tree, full_tree, (name,))
        return _PytreeError(f"{name}: the trees have different structures. {difference}")

    return [] if _difference(treedef, prefix_tree, full_tree, ()) is None else [error]

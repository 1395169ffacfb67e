"""`jax.custom_derivatives`: that of tinyxla, and the primitives that jaxprs show."""

from tinyxla import tree as _tree
from tinyxla.custom_derivatives import CustomVJPPrimal as _CustomVJPPrimal, SymbolicZero as _SymbolicZero
from tinyxla.jax.jaxprs.avals import get_aval as _get_aval, zeros_like_aval as _zeros_like_aval
from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives

custom_jvp_call_p, custom_vjp_call_p = _primitives["custom_jvp_call"], _primitives["custom_vjp_call"]


def zero_from_primal(x, symbolic_zeros=False):
    """The zero tangent of each leaf: an array, or with `symbolic_zeros` an object that stands for one."""

    def zero(leaf):
        aval = _get_aval(leaf).to_tangent_aval()
        return _SymbolicZero(aval) if symbolic_zeros else _zeros_like_aval(aval)

    return _tree.map(zero, x)


def custom_vjp_primal_tree_values(tree):
    """The values of the arguments of a forward rule with `symbolic_zeros`."""

    def value(leaf):
        if type(leaf) is not _CustomVJPPrimal:
            raise TypeError(f"custom_vjp_primal_tree_values: unexpected leaf type {type(leaf)}")
        return leaf.value

    return _tree.map(value, tree)

"""Exported functions: programs in StableHLO that are kept and sent, and run here or by XLA; in the shape of
`jax.export`.

Symbolic dimensions are objects in the place of sizes while a function is traced: polynomials in variables, from which
the rules of shapes compute polynomials (`tinyxla.shapes.symbolic`). So a function is traced once for all sizes, and
what depends on the value of a size, or on an order of sizes that is not known, is an error and never a program that is
right for some sizes only. (The other way, to trace at several sizes and to fit polynomials to what is found, would have
had to guess which of the function's decisions depend on sizes.) The writer of StableHLO makes them sizes that are
computed from the arguments'.

>>> import tinyxla as tx
>>> from tinyxla import export
>>> shape = export.symbolic_shape("b, 2")
>>> exported = export.export(tx.jit(lambda x: tx.numpy.tanh(x).sum(0)))(tx.ShapeDtypeStruct(shape, "float32"))
>>> again = export.deserialize(exported.serialize())
>>> again.call(tx.numpy.zeros((5, 2)))
Array([0., 0.], dtype=float32)
"""

from tinyxla.export.container import deserialize as deserialize
from tinyxla.export.exported import (
    DisabledSafetyCheck as DisabledSafetyCheck,
    Exported as Exported,
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from tinyxla.export.exporting import default_export_platform as default_export_platform, export as export
from tinyxla.export.symbols import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_args_specs as symbolic_args_specs,
    symbolic_shape as symbolic_shape,
)
from tinyxla.export.trees import (
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
)

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_shape",
]

"""`jax.export`: exported functions, whose types of arguments and results are abstract values."""

from tinyxla.export.exported import Exported as Exported
from tinyxla.jax.stages.stage_attributes import exported_avals as _exported_avals

Exported.in_avals, Exported.out_avals = _exported_avals("in_avals"), _exported_avals("out_avals")

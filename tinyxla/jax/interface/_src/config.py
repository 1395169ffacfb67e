"""`jax._src.config`: the options, each as an object, and the functions that set them."""

from tinyxla.jax.options import State as State, states as _states
from tinyxla.tracing.config import config as config

globals().update(_states)
update, read = config.update, config.read  # pyright: ignore[reportAttributeAccessIssue]
config_with_absl = config.config_with_absl  # pyright: ignore[reportAttributeAccessIssue]
parse_flags_with_absl = config.parse_flags_with_absl  # pyright: ignore[reportAttributeAccessIssue]

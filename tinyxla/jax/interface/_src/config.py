"""`jax._src.config`: the options, each as an object, and the functions that set them."""

from tinyxla.jax.flags import Flag as _Flag, bool_env as bool_env, int_env as int_env
from tinyxla.jax.options import State as State, states as _states
from tinyxla.tracing.config import config as config

globals().update(_states)
config_states = {f"jax_{name}": state for name, state in _states.items()}
update, read, _read = config.update, config.read, config.read  # pyright: ignore[reportAttributeAccessIssue]
config_with_absl = config.config_with_absl  # pyright: ignore[reportAttributeAccessIssue]
parse_flags_with_absl = config.parse_flags_with_absl  # pyright: ignore[reportAttributeAccessIssue]
bool_flag = int_flag = float_flag = string_flag = _Flag


def enum_flag(name, default, enum_values=(), help=""):
    """A flag whose value is one of several texts."""
    return _Flag(name, default, help, enum_values)

"""`jax._src.dtypes`."""

from tinyxla.dtypes import *  # noqa: F403
from tinyxla.errors import PromotionError as TypePromotionError

__all__ = ["TypePromotionError"]

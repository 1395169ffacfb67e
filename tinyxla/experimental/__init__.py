"""What JAX has under this name."""

from tinyxla.api.callbacks import io_callback

__all__ = ["io_callback"]


def __dir__() -> list[str]:
    return __all__

"""`jax.experimental.compilation_cache.compilation_cache`: where compiled kernels are kept."""

from tinyxla.tracing.config import config as _config


def set_cache_dir(path):
    """Keep compiled kernels in this folder."""
    _config.update("compilation_cache_dir", path)


def reset_cache():
    """Keep them where they are kept by default."""
    _config.update("compilation_cache_dir", None)

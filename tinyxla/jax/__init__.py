"""The import hook for programs written for JAX: after `import tinyxla.jax`, `import jax` gives tinyxla.

Ways to switch it on, all with the same effect:

- `python -m tinyxla.jax script.py arguments`, or `-m module`, as `python` itself takes them;
- `import tinyxla.jax` as the first line of a program or a notebook;
- `pytest -p tinyxla.jax`;
- the environment variable `TINYXLA_JAX=1`, for notebook servers and services, where tinyxla is installed from a wheel.

`jax`, its submodules and the names of `jaxlib` that programs ask for are then modules of this library, also where JAX
is installed; `jax.__version__` and `importlib.metadata.version("jax")` say which version's interface they follow.
Modules and names that are missing raise `ModuleNotFoundError` and `AttributeError` that say so.

Example:
    >>> import tinyxla.jax
    >>> import jax
    >>> jax.grad(jax.numpy.sin)(0.0)
    Array(1., dtype=float32, weak_type=True)
"""

from tinyxla.jax.finder import JAX_VERSION as JAX_VERSION, install as install

__all__ = ["JAX_VERSION", "install", "pytest_report_header"]


def pytest_report_header() -> str:
    """What `pytest -p tinyxla.jax` prints at the top of its report."""
    return f"jax: the interface of {JAX_VERSION}, by tinyxla"


install()

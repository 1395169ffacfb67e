"""Context managers: options for a block of code, names for what is recorded in it, and values computed at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tinyxla.api.functions import check_callable
from tinyxla.errors import ArgumentError
from tinyxla.tracing.config import Block, NoEffect, setting, warn_unless_satisfied
from tinyxla.tracing.core import state
from tinyxla.util.wrapping import transformed

Context = AbstractContextManager[None]


def disable_jit(disable: bool = True) -> Context:
    """Compiled functions run as plain Python inside, and loops and branches as Python's: values can be looked at.

    Args:
        disable: whether compilation is off inside.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> with tx.disable_jit():
        ...     tx.jit(lambda x: x + 1 if x > 0 else x)(tx.numpy.float32(2))
        Array(3., dtype=float32)
    """
    return setting("disable_jit", disable)


def enable_x64(new_val: bool = True) -> Context:
    """Inside, 64-bit NumPy inputs and defaults stay 64-bit (or, with False, become 32-bit).

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> with tx.enable_x64():
        ...     tx.numpy.arange(2.0).dtype
        dtype('float64')
    """
    return setting("enable_x64", new_val)


def debug_nans(new_val: bool = True) -> Context:
    """Inside, an operation that makes a NaN of operands without one is an error that names it and the user's line.

    Results of compiled functions are looked at when they return; only where one has a NaN the program runs once more,
    op by op, to find where it arose. What is NaN in the arguments, or as a constant, is let through.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        NonFiniteError: (a FloatingPointError) there is a NaN.

    Example:
        >>> import tinyxla as tx
        >>> try:
        ...     with tx.debug_nans():
        ...         tx.jit(lambda x: tx.numpy.log(x) + 1)(-1.0)
        ... except FloatingPointError as error:
        ...     print(str(error).splitlines()[0])
        log: the result has a NaN, while no operand has any.
    """
    return setting("debug_nans", new_val)


def debug_infs(new_val: bool = True) -> Context:
    """As `debug_nans`, for infinities.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.
        NonFiniteError: (a FloatingPointError) there is an infinity.

    Example:
        >>> import tinyxla as tx
        >>> try:
        ...     with tx.debug_infs():
        ...         tx.jit(lambda x: 1 / x)(0.0)
        ... except FloatingPointError as error:
        ...     print(str(error).splitlines()[0])
        divide: the result has an infinity, while no operand has any.
    """
    return setting("debug_infs", new_val)


def numpy_dtype_promotion(new_val: str = "standard") -> Context:
    """With "strict", operations on arrays of different element types are errors inside; Python numbers still adapt.

    Args:
        new_val: "standard" or "strict".

    Returns:
        A context manager.

    Raises:
        PromotionError: the types differ.

    Example:
        >>> import tinyxla as tx
        >>> import tinyxla.numpy as jnp
        >>> with tx.numpy_dtype_promotion("strict"):
        ...     jnp.arange(3) + 1
        Array([1, 2, 3], dtype=int32)
    """
    return setting("numpy_dtype_promotion", new_val)


def numpy_rank_promotion(new_val: str = "allow") -> Context:
    """What to do inside where arrays of different ranks broadcast (scalars may always): "allow", "warn" or "raise".

    Args:
        new_val: "allow", "warn" or "raise".

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> import tinyxla.numpy as jnp
        >>> with tx.numpy_rank_promotion("raise"):
        ...     jnp.ones((2, 3)) + 1
        Array([[2., 2., 2.],
               [2., 2., 2.]], dtype=float32)
    """
    return setting("numpy_rank_promotion", new_val)


def default_prng_impl(new_val: str = "threefry2x32") -> Context:
    """Inside, keys that are made where no generator is named are of that one, and arrays of words stand for its keys.

    Args:
        new_val: the name of a generator.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> with tx.default_prng_impl("rbg"):
        ...     tx.random.key(0).dtype
        key<rbg>
    """
    return setting("default_prng_impl", new_val)


def enable_custom_prng(new_val: bool = True) -> Context:
    """Inside, `random.PRNGKey` makes keys as `random.key` does, and no arrays of words.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> with tx.enable_custom_prng():
        ...     tx.random.PRNGKey(0).dtype
        key<fry>
    """
    return setting("enable_custom_prng", new_val)


def legacy_prng_key(new_val: str = "allow") -> Context:
    """What to do inside where a function of `random` takes an array of words for a key: "allow", "warn" or "error".

    Args:
        new_val: "allow", "warn" or "error".

    Returns:
        A context manager.

    Raises:
        ArgumentError: with "error", there is such a key.

    Example:
        >>> import tinyxla as tx
        >>> with tx.legacy_prng_key("error"):
        ...     tx.random.uniform(tx.random.key(0)).shape
        ()
    """
    return setting("legacy_prng_key", new_val)


def threefry_partitionable(new_val: bool = True) -> Context:
    """With False, the bits that keys of Threefry stand for are inside those that were drawn before none depended on how
    many are drawn.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> with tx.threefry_partitionable(False):
        ...     tx.random.bits(tx.random.key(0), (2,))
        Array([ 928981903, 3453687069], dtype=uint32)
    """
    return setting("threefry_partitionable", new_val)


def check_tracer_leaks(new_val: bool = True) -> Context:
    """Inside, a traced or batched function that leaves a tracer in an outer variable or container is an error when it
    ends, which names the container. Without this it is an error where the tracer is used.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        ShapeError: an array of several elements.

    Example:
        >>> import tinyxla as tx
        >>> kept = []
        >>> with tx.check_tracer_leaks():
        ...     tx.jit(lambda x: kept.append(x))(1)
        Traceback (most recent call last):
            ...
        tinyxla.errors.LeakedTracerError: The traced function <lambda> has ended, but a tracer s32[] of it is ...
    """
    return setting("check_tracer_leaks", new_val)


def default_matmul_precision(new_val: str | None = None) -> Context:
    """Nothing changes inside: products are as exact as their element type always.

    Args:
        new_val: the name of a precision.

    Returns:
        A context manager.

    Example:
        >>> import tinyxla as tx
        >>> import tinyxla.numpy as jnp
        >>> with tx.default_matmul_precision("highest"):
        ...     jnp.ones((2, 3)) @ jnp.ones(3)
        Array([3., 3.], dtype=float32)
    """
    warn_unless_satisfied("default_matmul_precision", new_val)
    return NoEffect()


def log_compiles(new_val: bool = True) -> Context:
    """Inside, what is traced and compiled is logged: the function, shapes, times, and the user's line.

    Messages are warnings of the logger "tinyxla" of Python's `logging`.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> with tx.log_compiles():
        ...     tx.jit(lambda x: x + 1)(1.0)
        Array(2., dtype=float32, weak_type=True)
    """
    return setting("log_compiles", new_val)


def explain_cache_misses(new_val: bool = True) -> Context:
    """Inside, where a compiled function is traced, a warning of the logger "tinyxla" says why: which argument has
    another shape, type, weak type or structure, or which static value is another, than in the nearest call before.

    Args:
        new_val: the value of the option inside; by default it is on.

    Returns:
        A context manager.

    Raises:
        AttributeValueError: what is neither True nor False.

    Example:
        >>> import tinyxla as tx
        >>> f = tx.jit(lambda x: x + 1)
        >>> with tx.explain_cache_misses():
        ...     _ = f(tx.numpy.ones(2)), f(tx.numpy.ones(3))
    """
    return setting("explain_cache_misses", new_val)


def transfer_guard(new_val: str) -> Context:
    """Inside, copies to and between devices that are not asked for are allowed, logged by the logger "tinyxla", or
    errors.

    Args:
        new_val: "allow", "log", "disallow", or to include copies that are asked for, as by `device_put`, "log_explicit"
            or "disallow_explicit".

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> double = tx.jit(lambda x: 2 * x)
        >>> x = tx.device_put(3.0)
        >>> with tx.transfer_guard("disallow"):
        ...     double(x)  # double(3.0) would be an error
        Array(6., dtype=float32, weak_type=True)
    """
    return setting("transfer_guard", new_val)


def transfer_guard_host_to_device(new_val: str) -> Context:
    """Inside, copies to a device that are not asked for, as of an array of NumPy's that is the argument of a compiled
    function, are allowed, logged by the logger "tinyxla", or errors.

    Args:
        new_val: "allow", "log", "disallow", or to include copies that are asked for, as by `device_put`, "log_explicit"
            or "disallow_explicit".

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> with tx.transfer_guard_host_to_device("disallow"):
        ...     tx.device_put(3.0) * 2.0
        Traceback (most recent call last):
            ...
        tinyxla.errors.TransferGuardError: multiply: float64[] is copied from the host to a device, which ...
    """
    return setting("transfer_guard_host_to_device", new_val)


def transfer_guard_device_to_device(new_val: str) -> Context:
    """Inside, copies of arrays to other devices that are not asked for are allowed, logged by the logger "tinyxla", or
    errors.

    Args:
        new_val: "allow", "log", "disallow", or to include copies that are asked for, as by `device_put`, "log_explicit"
            or "disallow_explicit".

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> x = tx.device_put(3.0)
        >>> with tx.transfer_guard_device_to_device("disallow"):
        ...     x + x
        Array(6., dtype=float32, weak_type=True)
    """
    return setting("transfer_guard_device_to_device", new_val)


def transfer_guard_device_to_host(new_val: str) -> Context:
    """Inside, arrays may become NumPy's as everywhere: on a CPU that copies nothing to the host, so that there is
    nothing to refuse.

    Args:
        new_val: "allow", "log", "disallow", or to include copies that are asked for, as by `device_put`, "log_explicit"
            or "disallow_explicit".

    Returns:
        A context manager.

    Raises:
        AttributeValueError: a value that the option does not have.

    Example:
        >>> import tinyxla as tx
        >>> x = tx.numpy.arange(2)
        >>> with tx.transfer_guard_device_to_host("disallow"):
        ...     x.tolist()
        [0, 1]
    """
    return setting("transfer_guard_device_to_host", new_val)


class ensure_compile_time_eval(Block):
    """Inside, operations on concrete values are computed at once, also while a function is traced: their results can be
    looked at by Python and enter the graph as constants.

    Example:
        >>> import tinyxla as tx
        >>> @tx.jit
        ... def f(x):
        ...     with tx.ensure_compile_time_eval():
        ...         n = int(tx.numpy.ones(3).sum())
        ...     return x * n
        >>> f(2.0)
        Array(6., dtype=float32, weak_type=True)
    """

    def __enter__(self) -> None:
        self._outer = state.staging
        state.staging = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state.staging = self._outer


class named_scope(Block):
    """A name for what is recorded inside; also a decorator. Names nest, and stay through transformations, which go
    around them: the way back of `layer` is `transpose(jvp(layer))`.

    Instructions carry it with the user's line: in `jit(f).lower(x).as_text(debug_info=True)` as part of `op_name`, in
    the plan of the compiled program beside each kernel's line.

    Example:
        >>> import tinyxla as tx
        >>> @tx.jit
        ... @tx.named_scope("layer")
        ... def f(x):
        ...     return tx.numpy.sin(x)
        >>> "layer/sine" in f.lower(1.0).as_text(debug_info=True)
        True
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"named_scope takes a string, but got {name!r} of type {type(name).__name__}.")
        self._name = name

    def __repr__(self) -> str:
        return f"<named_scope {self._name!r}>"

    def __enter__(self) -> None:
        self._outer = outer = state.scope
        state.scope = f"{outer}/{self._name}" if outer else self._name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state.scope = self._outer


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """The function inside a `named_scope`, by default of its own name.

    Args:
        fun: a function.
        name: the name; by default that of the function.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: what is no function, or a name that is no text.

    Example:
        >>> import tinyxla as tx
        >>> half = tx.named_call(lambda x: x / 2, name="halving")
        >>> half(3.0)
        1.5
    """
    check_callable("named_call", fun)
    return transformed("named_call", fun)(named_scope(name or getattr(fun, "__name__", type(fun).__name__))(fun))

"""What `checkpoint` can be told to keep of the way there, for the way back.

A policy is asked of each operation: `policy(op, *shapes, **attributes)` says whether to keep its result. Names and
meanings are those of `jax.checkpoint_policies`. There is one memory here, so what "offload" moves to another one is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from tinyxla.errors import ArgumentError
from tinyxla.ops.checkpoint_name import checkpoint_name

Policy = Callable[..., bool]


def _names(what: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(f"checkpoint_policies.{what}: names must be a list of texts, but got {names!r}.")
    found = tuple(cast(Iterable[Any], names))
    for name in found:
        if not isinstance(name, str):
            raise ArgumentError(f"checkpoint_policies.{what}: a name is a text, but got {name!r}.")
    return found


def everything_saveable(op: Any, *shapes: Any, **attributes: Any) -> bool:
    """Keep all results, as without a checkpoint.

    Args:
        op: the operation.
        *shapes: the shapes of its operands.
        **attributes: the attributes of the operation.

    Returns:
        True.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.everything_saveable
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[] from get-tuple-element at ...
    f32[2] from the argument x
    f32[2] from get-tuple-element at ...
    f32[2] from get-tuple-element at ...
    """
    return True


def nothing_saveable(op: Any, *shapes: Any, **attributes: Any) -> bool:
    """Keep the arguments alone, as without a policy.

    Args:
        op: the operation.
        *shapes: the shapes of its operands.
        **attributes: the attributes of the operation.

    Returns:
        False.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.nothing_saveable
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    """
    return False


def dots_saveable(op: Any, *shapes: Any, **attributes: Any) -> bool:
    """Keep the results of products of matrices and of convolutions.

    Args:
        op: the operation.
        *shapes: the shapes of its operands.
        **attributes: the attributes of the operation.

    Returns:
        Whether the result is kept.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.dots_saveable
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    return getattr(op, "name", None) in ("dot", "convolution")


def dots_with_no_batch_dims_saveable(op: Any, *shapes: Any, **attributes: Any) -> bool:
    """Keep the results of products without batch dimensions, as those with the weights of layers are.

    Args:
        op: the operation.
        *shapes: the shapes of its operands.
        **attributes: the attributes of the operation.

    Returns:
        Whether the result is kept.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.dots_with_no_batch_dims_saveable
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    return getattr(op, "name", None) == "dot" and not attributes.get("lhs_batch_dims")


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """`dots_with_no_batch_dims_saveable`: what would be moved from one memory to the other is kept.

    Args:
        offload_src, offload_dst: kinds of memory, accepted for compatibility: there is one.

    Returns:
        A policy for `checkpoint`.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    return dots_with_no_batch_dims_saveable


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keep what `checkpoint_name` gives one of these names.

    Args:
        *names_which_can_be_saved: names given by `checkpoint_name`.

    Returns:
        A policy for `checkpoint`.

    Raises:
        ArgumentError: a name that is no text.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.save_only_these_names("hidden")
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    names = _names("save_only_these_names", names_which_can_be_saved)

    def policy(op: Any, *shapes: Any, **attributes: Any) -> bool:
        return op is checkpoint_name and attributes["name"] in names

    return policy


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Keep what has a name, but for these names.

    Args:
        *names_not_to_save: names given by `checkpoint_name`.

    Returns:
        A policy for `checkpoint`.

    Raises:
        ArgumentError: a name that is no text.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.save_any_names_but_these("hidden")
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    """
    names = _names("save_any_names_but_these", names_not_to_save)

    def policy(op: Any, *shapes: Any, **attributes: Any) -> bool:
        return op is checkpoint_name and attributes["name"] not in names

    return policy


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Keep all results but what has one of these names.

    Args:
        *names_not_to_save: names given by `checkpoint_name`.

    Returns:
        A policy for `checkpoint`.

    Raises:
        ArgumentError: a name that is no text.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.save_anything_except_these_names("hidden")
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[] from get-tuple-element at ...
    f32[2] from the argument x
    f32[2] from get-tuple-element at ...
    f32[2] from get-tuple-element at ...
    """
    names = _names("save_anything_except_these_names", names_not_to_save)

    def policy(op: Any, *shapes: Any, **attributes: Any) -> bool:
        return op is not checkpoint_name or attributes["name"] not in names

    return policy


def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Keep what has one of the names of either list.

    Args:
        names_which_can_be_saved: names given by `checkpoint_name`.
        names_which_can_be_offloaded: names given by `checkpoint_name`.
        offload_src, offload_dst: kinds of memory, accepted for compatibility: there is one.

    Returns:
        A policy for `checkpoint`.

    Raises:
        ArgumentError: what is no list, or a name that is no text.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> policy = tx.checkpoint_policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"], offload_src="a", offload_dst="b"
    ... )
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    both = names_which_can_be_saved, names_which_can_be_offloaded
    saved, offloaded = (_names("save_and_offload_only_these_names", names) for names in both)
    return save_only_these_names(*saved, *offloaded)


def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Keep what either policy keeps.

    Args:
        policy_1, policy_2: policies.

    Returns:
        A policy for `checkpoint`.

    Raises:
        ArgumentError: a policy that is no function.

    >>> import tinyxla as tx
    >>> from tinyxla.ad_checkpoint import checkpoint_name, print_saved_residuals
    >>> f = lambda x: tx.numpy.sin(checkpoint_name(tx.numpy.sin(x) @ x, "hidden"))
    >>> named = tx.checkpoint_policies.save_only_these_names("hidden")
    >>> policy = tx.checkpoint_policies.save_from_both_policies(named, tx.checkpoint_policies.dots_saveable)
    >>> print_saved_residuals(tx.checkpoint(f, policy=policy), tx.numpy.ones(2))
    f32[2] from the argument x
    f32[] from get-tuple-element at ...
    """
    for given in (policy_1, policy_2):
        if not callable(given):
            raise ArgumentError(
                f"checkpoint_policies.save_from_both_policies: a policy is a function, but got {given!r}."
            )

    def policy(op: Any, *shapes: Any, **attributes: Any) -> bool:
        return policy_1(op, *shapes, **attributes) or policy_2(op, *shapes, **attributes)

    return policy


__all__ = [
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "nothing_saveable",
    "offload_dot_with_no_batch_dims",
    "save_and_offload_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_from_both_policies",
    "save_only_these_names",
]


def __dir__() -> list[str]:
    return __all__

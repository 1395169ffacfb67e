"""`jax.ad_checkpoint`: that of tinyxla, and what policies answer beside True and False."""

from typing import NamedTuple

from tinyxla.jax.tracing.checkpoint_policies import checkpoint as checkpoint, policies as checkpoint_policies

remat = checkpoint


class _Answer:
    """What is done with a result of the way there."""

    def __init__(self, name: str, is_kept: bool) -> None:
        self._name = name
        self._is_kept = is_kept

    def __bool__(self) -> bool:
        return self._is_kept

    def __repr__(self) -> str:
        return self._name


Saveable, Recompute = _Answer("Saveable", True), _Answer("Recompute", False)


class Offloadable(NamedTuple):
    """Move it to another memory, of which there is one here: it is kept."""

    src: str
    dst: str

"""`jax.memory`: kinds of memory, of which a CPU has one."""

import enum


class Space(enum.Enum):
    """Where an array is; all are the same memory here."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

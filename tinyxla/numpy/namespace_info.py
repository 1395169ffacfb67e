"""What the namespace can do, as the Python array API standard asks for it (2024.12, "Inspection")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.errors import AttributeValueError
from tinyxla.tracing.device import CPU, Device
from tinyxla.tracing.promotion import config, default_complex, default_float, default_int

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]
_WIDE = frozenset(("int64", "uint64", "float64", "complex128"))


class NamespaceInfo:
    """Answers about `tinyxla.numpy`: what `__array_namespace_info__` gives."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks as indices and shapes that depend on values are possible (outside of `jit`)."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The CPU."""
        return CPU

    def devices(self) -> list[Device]:
        """The CPU."""
        return [CPU]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The types of Python's numbers: of 32 bits, or of 64 where `enable_x64` is set."""
        whole = default_int()
        return {
            "real floating": default_float(),
            "complex floating": default_complex(),
            "integral": whole,
            "indexing": whole,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """The standard's element types, by name; of one kind, or of several. Those of 64 bits need `enable_x64`.

        Raises:
            AttributeValueError: there is no such kind.
        """
        kinds = tuple(_KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        for k in kinds:
            if k not in _KINDS:
                raise AttributeValueError(f"dtypes: kind must be one of {', '.join(map(repr, _KINDS))}, but got {k!r}.")
        names = dict.fromkeys(name for k in kinds for name in _KINDS[k] if config.enable_x64 or name not in _WIDE)
        return {name: np.dtype(name) for name in names}

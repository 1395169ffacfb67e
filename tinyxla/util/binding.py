"""Arguments by the parameters of a signature, with a typed error for those that do not fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from tinyxla.errors import ArgumentError

_MISMATCH = re.compile("missing a required|too many positional|got an unexpected|multiple values")


def bind(
    what: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], hint: str = ""
) -> inspect.BoundArguments:
    """The arguments of a call by parameter. The hint is added to the error's text.

    Raises:
        ArgumentError: they do not fit. A TypeError that comes from elsewhere, such as a signal's handler, is passed on.
    """
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        if not _MISMATCH.match(str(error)):
            raise
        raise ArgumentError(f"{what}: {error}{hint}.") from None

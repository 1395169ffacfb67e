"""Filtered tracebacks of errors that come where no line is, as an interrupt may."""

from __future__ import annotations

import sys
from types import FunctionType

import pytest

import tinyxla as tx


def fails() -> None:
    raise KeyError("here")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Python has a line for each instruction")
def test_traceback_filter_of_instruction_without_line_keeps_the_error() -> None:
    without_lines = FunctionType(fails.__code__.replace(co_linetable=b""), globals())
    error: BaseException | None = None
    try:
        tx.jit(lambda x: without_lines() or x)(1.0)
    except KeyError as raised:
        error = raised
    assert error is not None
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    assert entry is not None
    assert entry.tb_frame.f_code.co_name == "fails"
    assert entry.tb_lineno is None

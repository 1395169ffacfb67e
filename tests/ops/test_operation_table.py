"""docs/operations.md is of the operations as they are: no op and no documented operation is missing, no cell is empty,
and all that can be said without running the checks again is as the page says."""

from __future__ import annotations

import re

from tests.support import operation_table
from tests.support.operation_table import COLUMNS, COMPILED, OF_THE_LIBRARY, ONLY_IN_TEXT, PAGE, SECTIONS
from tinyxla import xla
from tinyxla.ops import ops
from tinyxla.xla.builder import functions

Rows = list[list[str]]


def rows_of(text: str) -> Rows:
    """The cells of all tables, without their headings."""
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells != list(COLUMNS) and set(cells) != {"---"}]


def test_no_cell_is_empty() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert rows
    for cells in rows:
        assert len(cells) == len(COLUMNS), cells
        assert all(cell.strip(" –") for cell in cells), cells


def test_every_operation_is_there() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    documented = [name for names in SECTIONS.values() for name in names]
    assert sorted(re.findall(r"`(\w+)\(", "".join(cells[0] for cells in rows))) == sorted(documented)
    assert {cells[1].strip("`") for cells in rows} == set(ops)
    assert {op for names in SECTIONS.values() for op in names.values()}.isdisjoint({*ONLY_IN_TEXT, *OF_THE_LIBRARY})


def test_every_function_of_the_builder_is_there() -> None:
    documented = {name for names in SECTIONS.values() for name in names}
    assert {name for name in vars(xla) if name[0].isupper() and name in functions} == documented
    assert {name for name in functions if name[0].isupper()} == documented


def test_page_is_up_to_date() -> None:
    """Signatures, numbers of samples and of preconditions, kinds of derivatives and the reasons that are given."""
    text = PAGE.read_text(encoding="utf-8")
    expected = operation_table.page(checked=False)
    assert text.startswith(operation_table.INTRODUCTION)
    for found, wanted in zip(rows_of(text), rows_of(expected), strict=True):
        found[COMPILED] = re.sub(r"^(\d+) .*", r"\1", found[COMPILED])  # without what runs it
        assert found == wanted

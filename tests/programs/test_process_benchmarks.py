"""The benchmarks of many processes: programs compute the same in both libraries, and tables say what was measured."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from benchmarks import scaling
from benchmarks.processes.calls import ITERATIONS, OPERATIONS, looped, single
from benchmarks.processes.measure import Request, check, is_compared, write_values
from benchmarks.processes.report import rows_of, screen_table, section, shown, write_section
from benchmarks.processes.run import measure
from benchmarks.processes.workloads import mesh_of, programs
from benchmarks.report import OF_OTHERS, SECTION_OF_PROCESSES, section_of
from tests.support.processes import needs_mpi
from tinyxla.distributed.scaling import Network, Processor, collective, predict

SMALL = programs(part=4, width=16)
DEVICES = 4  # of `four_devices`


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_programs_over_devices_compute_what_jax_does_on_one(name: str, four_devices: None) -> None:
    workload = SMALL[name]
    values: list[list[np.ndarray[Any, Any]]] = []
    for library, mesh in ((tx, mesh_of(tx)), (jax, jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",)))):
        found = library.jit(workload.make(library, mesh))(*workload.placed(library, mesh, DEVICES))
        values.append([np.asarray(x) for x in library.tree_util.tree_leaves(found)])
    ours, theirs = values
    named = {f"row: result {k}": x for k, x in enumerate(theirs)}
    check("row", ([(..., x)] for x in ours), named)


def expected(operation: str, parts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The result of an operation on the rows of an array, those of devices."""
    if operation == "all-to-all":
        return parts.reshape(DEVICES, DEVICES, -1).swapaxes(0, 1).reshape(-1)
    if operation == "collective-permute":
        return np.roll(parts, 1, 0).reshape(-1)
    if operation == "all-gather":
        return np.tile(parts.reshape(-1), DEVICES)
    return parts.sum(0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_what_it_says(operation: str, four_devices: None) -> None:
    mesh, workload = mesh_of(tx), single(operation, 32)
    (x,) = workload.placed(tx, mesh, DEVICES)
    found = tx.jit(workload.make(tx, mesh))(x)
    np.testing.assert_allclose(found, expected(operation, np.asarray(x).reshape(DEVICES, -1)), rtol=1e-5)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_loops_talk_in_each_iteration(operation: str) -> None:
    """Nothing is hoisted, nor are iterations made one."""
    cost = scaling.lowered(looped(operation, 64), 4, 4).process_cost()
    assert [(c.name, c.times) for c in cost.collectives] == [(operation, ITERATIONS)]
    assert cost.communication == collective(operation, 64, 4)._make(
        ITERATIONS * n for n in collective(operation, 64, 4)
    )


# --- measurements -----------------------------------------------------------------------------------------------------


def test_values_of_programs_in_one_process(tmp_path: Path) -> None:
    request = Request(("single",), quick=True)
    before = tx.config.num_cpu_devices
    write_values(request, 2, tmp_path)
    tx.config.update("num_cpu_devices", before)
    values = np.load(tmp_path / "values.npz")
    assert {name.partition(":")[0] for name in values} == set(request.rows(2))


def test_a_wrong_part_is_told() -> None:
    values = {"row: result 0": np.arange(8.0)}
    check("row", iter([[(slice(4, 8), np.arange(4.0, 8.0))]]), values)
    with pytest.raises(AssertionError, match=r"row: result 0: of the part slice\(4, 8, None\) 100\.0% is wrong"):
        check("row", iter([[(slice(4, 8), np.arange(4.0))]]), values)


def test_requests_are_read_as_they_were_written(tmp_path: Path) -> None:
    request = Request(("program",), True, (1, 4))
    request.write(tmp_path)
    assert Request.read(tmp_path) == request
    assert "heat equation, 100 steps x 4" in request.rows(2)
    assert json.loads((tmp_path / "request.json").read_text())["quick"] is True


def test_long_arrays_are_not_compared() -> None:
    assert is_compared(single("all-reduce", 1 << 20), 2)
    assert not is_compared(single("all-reduce", 64 << 20), 2)


@needs_mpi
@pytest.mark.thorough
def test_all_libraries_give_the_same_values_and_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    libraries = [name for name in ("tinyxla", "mpi4py", "jax") if find_spec(name)]
    before = tx.config.num_cpu_devices
    found = measure(libraries, 2, Request(quick=True))
    tx.config.update("num_cpu_devices", before)
    assert set(found["tinyxla"]) == set(Request(quick=True).rows(2)) == set(found["jax"])
    assert set(found["mpi4py"]) == set(Request(("single", "looped"), quick=True).rows(2))
    assert all(seconds > 0 for times in found.values() for seconds in times.values())


# --- tables -----------------------------------------------------------------------------------------------------------

MEASURED = {
    "tinyxla": {"all-reduce 4096 in a loop": 2e-6, "heat equation, 100 steps": 1e-3},
    "mpi4py": {"all-reduce 4096 in a loop": 1e-6},
    "jax": {"all-reduce 4096 in a loop": 4e-6, "heat equation, 100 steps": 3e-3},
}


def test_rows_show_times_and_ratios() -> None:
    head, rows = rows_of(MEASURED)
    assert head == ["workload", "tinyxla", "mpi4py", "JAX", "mpi4py / tinyxla", "JAX / tinyxla"]
    assert rows[0] == ["all-reduce of 4 KB in a loop", "2.00 µs", "1.00 µs", "4.00 µs", "0.50", "2.00"]
    assert rows[1] == ["heat equation, 100 steps", "1.00 ms", "", "3.00 ms", "", "3.00"]
    assert len({len(line) for line in screen_table(head, rows).splitlines()}) == 1
    assert [shown(f"all-gather {n}") for n in (16, 4 << 20)] == ["all-gather of 16 B", "all-gather of 4 MB"]


def test_a_section_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Page\n\nfirst\n\n## Scaling\n\nkept\n", encoding="utf-8")
    for _ in range(2):
        write_section(path, section(MEASURED, 2, "the command"))
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nfirst\n\n## Scaling\n\nkept\n\n## Many processes\n\nWritten by `the command`")
    assert text.count(SECTION_OF_PROCESSES) == 1
    assert text.endswith("|\n")
    write_section(path, "## Scaling\n\nnew\n")
    assert section_of(path.read_text(encoding="utf-8"), "## Scaling") == "## Scaling\n\nnew\n\n"
    assert section_of("# Page\n", "## Scaling") == ""


def test_the_page_has_the_sections_that_others_write() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert all(section_of(page, heading) for heading in OF_OTHERS)


# --- scaling ----------------------------------------------------------------------------------------------------------

NETWORK, PROCESSOR = Network(1e-6, 1e-10, 1e-10), Processor(1e-6, 1e-10, 1e-11)


def test_a_network_is_fitted_to_loops() -> None:
    sizes = [(operation, size) for operation in OPERATIONS for size in (64, 4096, 1 << 20)]
    times = {f"{o} {size} in a loop": NETWORK.seconds(collective(o, size, 2)) for o, size in sizes}
    assert scaling.fitted_network({**times, "another row": 1.0}, 2) == pytest.approx(NETWORK)


def test_tables_of_what_is_measured_and_predicted() -> None:
    workload = programs(width=16)["heat equation, 100 steps"]
    alone = {scale: scaling.lowered(workload, 1, scale).process_cost() for scale in scaling.FITTED}
    one = {f"{workload.name} x {scale}": PROCESSOR.seconds(x.cost, x.kernels) for scale, x in alone.items()}
    processor = scaling.fitted_processor(workload, one)
    two: dict[str, float] = {}
    for scale in (2, scaling.STRONG):
        own = scaling.slowed(processor, 2)
        two[f"{workload.name} x {scale}"] = 2 * predict(scaling.lowered(workload, 2, scale), own, NETWORK).seconds
    found = scaling.Measured({2: NETWORK}, {workload.name: processor}, {1: one, 2: two})
    head, rows = scaling.check_table(found, [workload])
    assert [row[:3] for row in rows] == [[workload.name, "weak", "2"], [workload.name, "strong", "2"]]
    assert [row[-1] for row in rows] == ["0.50", "0.50"]
    head, rows = scaling.scaling_table(found, NETWORK, [workload])
    assert head[-1] == "1,024"
    weak, strong = rows
    assert weak[2].endswith("(1.00)")
    assert weak[4:] == [weak[4]] * 4, "each process has two neighbours, however many there are"
    assert float(strong[-1].partition("(")[2].strip(")")) < 0.5


def test_more_processes_than_cores_share_them() -> None:
    cores = len(os.sched_getaffinity(0))
    assert scaling.slowed(PROCESSOR, 1) == PROCESSOR
    assert scaling.slowed(PROCESSOR, 4 * cores) == pytest.approx([4 * x for x in PROCESSOR])

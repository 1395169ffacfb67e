"""Benchmarks of packages that are built on JAX: the same program by JAX and by tinyxla under `tinyxla.jax`.

    python packages/benchmark.py                            # all workloads
    python packages/benchmark.py diffrax_solves training     # files of packages/benchmarks
    python packages/benchmark.py diffrax_solves:lorenz       # one workload
    python packages/benchmark.py --write                     # all, and write the table of docs/jax.md

Each workload runs in a process of its own, alone on the machine, from an empty compile cache, `--repeat` times with
each library in turns; the bytecode of the package is there, as it is after an installation. `whole` is the time of the
process until it has its first result: imports, tracing, compilation and the run; `imports` is the part of it until the
packages are imported. `steady` is the median of its later runs. Results of both libraries are compared as in
`packages/run.py`.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from run import ROOT, difference, write_table

HERE = Path(__file__).parent
STEADY = 1.0  # seconds of later runs
CHAOTIC = "nuts", "blackjax"  # samplers part company at the last bit: only shapes and types are compared


class Timing(NamedTuple):
    """Seconds of one process."""

    imports: float
    whole: float
    steady: float


def child(file: str, workload: str, output: str) -> None:
    """In a process of its own: run a workload and write its result and the times of its runs."""
    began = float(os.environ["BENCHMARK_STARTED"])
    spec = importlib.util.spec_from_file_location("benchmarks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import jax

    imports = time.time() - began
    run = getattr(module, workload)()
    result = jax.block_until_ready(run())
    whole = time.time() - began
    runs: list[float] = []
    while len(runs) < 3 or sum(runs) < STEADY:
        started = time.perf_counter()
        jax.block_until_ready(run())
        runs.append(time.perf_counter() - started)
    found = [np.asarray(x) for x in jax.tree.leaves(result)]
    with open(output, "wb") as stream:
        pickle.dump((Timing(imports, whole, statistics.median(runs))._asdict(), found), stream)


def measure(file: Path, workload: str, hook: bool) -> tuple[Timing, list[np.ndarray[Any, Any]]]:
    """One process of a workload."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result"
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "TINYXLA_CACHE_DIR": str(Path(folder) / "kernels")}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, *(["-m", "tinyxla.jax"] if hook else []), __file__]
        environment["BENCHMARK_STARTED"] = repr(time.time())
        subprocess.run([*command, "--child", str(file), workload, str(output)], env=environment, check=True)
        with open(output, "rb") as stream:
            times, result = pickle.load(stream)
    return Timing(**times), result


def compare(file: Path, workload: str, repeat: int) -> tuple[Timing, Timing, str]:
    """The medians of both libraries, and what differs between their results."""
    found: dict[bool, list[Timing]] = {False: [], True: []}
    results: dict[bool, list[np.ndarray[Any, Any]]] = {}
    for _ in range(repeat):
        for hook in found:
            timing, results[hook] = measure(file, workload, hook)
            found[hook].append(timing)
    jax, tinyxla = (Timing(*map(statistics.median, zip(*found[hook], strict=True))) for hook in (False, True))
    pairs = zip(results[False], results[True], strict=True)
    if any(x in file.stem for x in CHAOTIC):
        said = ["" if (a.shape, a.dtype) == (b.shape, b.dtype) else "shapes or types differ" for a, b in pairs]
    else:
        said = [difference(a, b) for a, b in pairs]
    return jax, tinyxla, "; ".join(x for x in said if x)


def main() -> int:
    """Print a line for each workload; exits with 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="FILE or FILE:WORKLOAD")
    parser.add_argument("--repeat", type=int, default=3, help="processes of each library")
    parser.add_argument("--write", action="store_true", help="write the table of docs/jax.md")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return 0
    compileall.compile_dir(ROOT / "tinyxla", quiet=1)
    rows: list[str] = []
    differ = False
    for file in sorted((HERE / "benchmarks").glob("*.py")):
        for workload in workloads(file):
            if options.names and not {file.stem, f"{file.stem}:{workload}"} & {*options.names}:
                continue
            jax, tinyxla, said = compare(file, workload, options.repeat)
            ratios = f"{jax.whole / tinyxla.whole:.1f}", f"{jax.steady / tinyxla.steady:.1f}"
            cells = (
                f"{jax.imports:.1f} s / {tinyxla.imports:.1f} s",
                f"{jax.whole:.1f} s / {tinyxla.whole:.1f} s",
                ratios[0],
                f"{1e3 * jax.steady:.3g} ms / {1e3 * tinyxla.steady:.3g} ms",
                ratios[1],
            )
            rows.append(f"| {file.stem}: {workload.replace('_', ' ')} | " + " | ".join(cells) + " |")
            print(rows[-1], said, flush=True)
            differ |= bool(said)
    if options.write:
        header = "| workload | imports, JAX / tinyxla | whole process | ratio | steady | ratio |"
        write_table("benchmarks", [header, "| --- | --- | --- | --- | --- | --- |", *rows])
    return int(differ)


def workloads(file: Path) -> list[str]:
    """The names in `WORKLOADS`, which stands at the end of a file, without importing its packages."""
    names = file.read_text().rpartition("WORKLOADS = [")[2].partition("]")[0]
    return [x.strip() for x in names.split(",")]


if __name__ == "__main__":
    sys.exit(main())

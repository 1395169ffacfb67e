"""Programs of packages that are built on JAX, run by JAX and by tinyxla under `tinyxla.jax`, and compared.

    python packages/run.py                  # all files of programs
    python packages/run.py optax equinox    # some
    python packages/run.py --once           # without the second run, which is timed only
    python packages/run.py --write          # all, and write the table of docs/jax.md

Each file runs in a process of its own, with an empty kernel cache, both libraries side by side. Results must have the
same shapes and types, the same integers and truth values, and floats that agree within a tolerance relative to the
largest of an array. Exits with 1 if a program that runs on JAX fails or differs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parent
TOLERANCE = 2e-3  # of chaotic iterations in 32 bits; most agree to 1e-6


class Outcome(NamedTuple):
    """How one program went: `verdict` is "same", "differs", "fails" or, where JAX cannot run it, "JAX fails"."""

    program: str
    verdict: str
    detail: str
    times: tuple[float, ...]  # first and second run of JAX, of tinyxla; seconds


def start(file: Path, hook: bool, folder: Path, runs: int) -> tuple[subprocess.Popen[str], Path]:
    """Run the programs of a file, by JAX or under the hook."""
    output = folder / f"{file.stem}-{'tinyxla' if hook else 'jax'}.pickle"
    first = ["-m", "tinyxla.jax"] if hook else []
    command = [sys.executable, *first, str(HERE / "driver.py"), str(file), str(output), str(runs)]
    variables = environment(hook, folder / f"{file.stem}-kernels")
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True), output


def environment(hook: bool, cache: Path, *paths: Path) -> dict[str, str]:
    """The variables of a process that runs by JAX, or under the hook with a kernel cache of its own."""
    folders = [*map(str, paths), *([str(ROOT)] if hook else []), os.environ.get("PYTHONPATH", "")]
    search = os.pathsep.join(folder for folder in folders if folder)
    return os.environ | {"JAX_PLATFORMS": "cpu", "TINYXLA_CACHE_DIR": str(cache), "PYTHONPATH": search}


def results(process: subprocess.Popen[str], output: Path, limit: float) -> dict[str, Any]:
    """What the programs of a process gave; an error of the whole file counts for each program."""
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"programs": {}, "error": f"no end within {limit:g} s"}
    if process.returncode:
        return {"programs": {}, "error": errors[-2000:]}
    with open(output, "rb") as file:
        return pickle.load(file)


def difference(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> str:
    """What differs between two arrays; nothing if they agree."""
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return f"{expected.dtype}{expected.shape} became {found.dtype}{found.shape}"
    if expected.dtype.kind not in "fc":
        return "" if np.array_equal(expected, found) else "integers differ"
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        return "infinities or NaNs differ"
    size = np.max(np.abs(expected), initial=0, where=finite)
    worst = np.max(np.abs(expected - found), initial=0, where=finite)
    return "" if worst <= TOLERANCE * size + 1e-6 else f"differs by {worst:.2g} of {size:.2g}"


def compare(name: str, jax: dict[str, Any], tinyxla: dict[str, Any]) -> Outcome:
    """One program's outcome."""
    expected = jax["programs"].get(name, {"error": jax.get("error"), "times": (0, 0)})
    found = tinyxla["programs"].get(name, {"error": tinyxla.get("error", "missing"), "times": (0, 0)})
    times = (*expected["times"], *found["times"])
    if expected["error"]:
        return Outcome(name, "JAX fails", expected["error"], times)
    if found["error"]:
        return Outcome(name, "fails", found["error"], times)
    pairs = list(zip(expected["result"], found["result"], strict=False))
    said = [difference(a, b) for a, b in pairs]
    if len(expected["result"]) != len(found["result"]):
        said.append(f"{len(expected['result'])} results became {len(found['result'])}")
    wrong = [x for x in said if x]
    return Outcome(name, "differs" if wrong else "same", "; ".join(wrong[:3]), times)


def main() -> int:
    """Run the files that are named, and print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="files of programs without _programs.py")
    parser.add_argument("--once", action="store_true", help="without the second run")
    parser.add_argument("--write", action="store_true", help="write the table of docs/jax.md")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one file")
    options = parser.parse_args()
    files = [
        f for f in sorted((HERE / "programs").glob("*_programs.py")) if not options.names or named(f) in options.names
    ]
    failed = 0
    rows: list[tuple[str, list[Outcome]]] = []
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            started = [start(file, hook, Path(folder), 1 if options.once else 2) for hook in (False, True)]
            jax, tinyxla = (results(*x, options.limit) for x in started)
        outcomes = [compare(name, jax, tinyxla) for name in {**jax["programs"], **tinyxla["programs"]} or [named(file)]]
        rows.append((named(file), outcomes))
        for x in outcomes:
            print(
                f"{named(file):>10} {x.program:<24} {x.verdict:<10} " + " ".join(f"{t:7.2f}" for t in x.times),
                flush=True,
            )
            if x.verdict in ("differs", "fails"):
                failed += 1
                print(x.detail)
    if options.write:
        write(rows)
    return 1 if failed else 0


def named(file: Path) -> str:
    """The name of a file of programs."""
    return file.stem.removesuffix("_programs")


def write(rows: list[tuple[str, list[Outcome]]]) -> None:
    """Put the table of programs into the page."""
    lines = [
        "| programs of | run | as on JAX | JAX, first run | tinyxla, first run |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, outcomes in rows:
        run = [x for x in outcomes if x.verdict != "JAX fails"]
        jax, tinyxla = sum(x.times[0] for x in run), sum(x.times[len(x.times) // 2] for x in run)
        same = sum(x.verdict == "same" for x in run)
        lines.append(f"| {name} | {len(run)} | {same} | {jax:.1f} s | {tinyxla:.1f} s |")
    write_table("packages", lines)


def write_table(name: str, lines: list[str]) -> None:
    """Replace the lines between the marks of a table in docs/jax.md."""
    page = ROOT / "docs" / "jax.md"
    before, mark, rest = page.read_text().partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    page.write_text(before + mark + "\n".join(lines) + "\n" + end + after)


if __name__ == "__main__":
    sys.exit(main())

"""The tests that packages built on JAX bring with their source distributions, run by tinyxla under `tinyxla.jax`.

    python packages/suites.py                 # a fixed sample of each suite
    python packages/suites.py optax           # some
    python packages/suites.py --all --write   # every test, and write the table of docs/jax.md

A source distribution of the version that `requirements.txt` pins is fetched by pip. Tests that fail under the hook are
run on JAX, too: those that fail there do not count. Exits with 1 if fewer than `PROMISED` of a suite's tests pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from run import HERE, environment, write_table

PROMISED = 0.98  # of the tests that pass on JAX


class Suite(NamedTuple):
    """The tests of one package: where they are, options of pytest, and of how many tests one is in the sample."""

    package: str
    paths: tuple[str, ...] = ("tests",)
    options: tuple[str, ...] = ()
    every: int = 1


_NAMED_TEST = ("-o", "python_files=*_test.py")
SUITES = (
    Suite("optax", ("optax",), _NAMED_TEST, every=3),
    Suite("flowjax"),
    Suite("paramax"),
    Suite("traceax", every=4),
    Suite("chex", ("chex",), _NAMED_TEST),
    # one file imports orbax, whose checkpoints need `jax.experimental.array_serialization`
    Suite(
        "flax",
        ("tests/core", "tests/linen", "tests/nnx"),
        ("--ignore=tests/nnx/integration_test.py", *_NAMED_TEST),
        every=24,
    ),
    # without files that need tensorflow, dill or checkpoints of the repository
    Suite(
        "dm-haiku",
        ("haiku",),
        (
            *(f"--ignore=haiku/_src/{name}_test.py" for name in ("data_structures", "reshape", "transform")),
            *(f"--ignore=haiku/_src/integration/{name}_test.py" for name in ("checkpoint", "jax2tf")),
            *_NAMED_TEST,
        ),
        every=60,
    ),
    # one file turns 64 bits on for all that run after it, and one needs mock
    Suite(
        "distrax",
        ("distrax",),
        ("--ignore-glob=*float64_test.py", "--ignore-glob=*log_stddev_normal_test.py", *_NAMED_TEST),
        every=60,
    ),
    # each function of `jax.numpy` and `jax.lax` on values that have a rule for each primitive of JAX's
    Suite("quax", ("tests/unit", "tests/usage"), every=2),
    # one file sets the number of devices, which must be done before any other test
    Suite("rlax", ("rlax",), ("--ignore-glob=*pop_art_test.py", *_NAMED_TEST), every=8),
    # without the files that compare with tensorflow
    Suite(
        "dm-pix",
        ("dm_pix",),
        (
            *(f"--ignore=dm_pix/_src/{name}_test.py" for name in "augment color_conversion metrics patch".split()),
            "--ignore=dm_pix/_src/depth_and_space_test.py",
            *_NAMED_TEST,
        ),
        every=2,
    ),
    Suite("sepes", options=("-k", "not benchmark")),
    Suite("exponax", every=24),
)

# Tests that pass on JAX and are not expected to here, each with the reason. They count as failures.
EXCLUDED: dict[str, str] = {
    "chex/_src/asserts_test.py::NumericalGradsAssertTest::test_hard_with_stop_gradient1": "`check_grads` takes another "
    "random direction than JAX's, and along it the differences step over a discontinuity",
    "tests/linen/linen_transforms_test.py::TransformTest::test_jit_decorated": "products of small matrices in compiled "
    "and in eager code differ in the last bit",
}


class Outcome(NamedTuple):
    """How a suite went: the numbers of its tests, and the names in `failed` of those that pass on JAX only."""

    package: str
    passed: int
    skipped: int
    fail_on_jax: int
    failed: list[str]
    seconds: float

    @property
    def share(self) -> float:
        """Of the tests that pass on JAX."""
        return self.passed / max(self.passed + len(self.failed), 1)


def pinned(package: str) -> str:
    """The line of a package in requirements.txt."""
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def fetch(package: str, folder: Path) -> Path:
    """Download a source distribution and unpack it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(folder), pinned(package)], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def outcomes(suite: Suite, folder: Path, hook: bool, every: int, names: list[str] | None = None) -> dict[str, str]:
    """Run tests of a suite, all or some by name, and give the outcome of each."""
    written = folder.parent / f"{suite.package}-{'tinyxla' if hook else 'jax'}.json"
    plugins = ["-p", "suite_plugin", *(["-p", "tinyxla.jax"] if hook else [])]
    options = ["-q", "-n", "2", "-p", "no:cacheprovider", "--tb=short", "--continue-on-collection-errors"]
    paths = suite.paths if names is None else names
    added = {"SUITE_EVERY": str(every), "SUITE_OUTCOMES": str(written)}
    subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, *suite.options, *paths],
        cwd=folder,
        env=environment(hook, folder.parent / "kernels", HERE) | added,
        stdout=None if hook else subprocess.DEVNULL,
    )
    return json.loads(written.read_text())


def run_suite(suite: Suite, every: int) -> Outcome:
    """Run the sample of a suite under the hook, and what fails there on JAX."""
    with tempfile.TemporaryDirectory() as scratch:
        download = Path(scratch, "download")
        download.mkdir()
        folder = fetch(suite.package, download)
        started = time.perf_counter()
        found = outcomes(suite, folder, True, every)
        seconds = time.perf_counter() - started
        failed = [name for name, outcome in found.items() if outcome == "failed"]
        on_jax = outcomes(suite, folder, False, 1, failed) if failed else {}
    counts = [sum(x == outcome for x in found.values()) for outcome in ("passed", "skipped")]
    return Outcome(suite.package, *counts, *against_jax(failed, on_jax), seconds)


def against_jax(failed: list[str], on_jax: dict[str, str]) -> tuple[int, list[str]]:
    """How many of the tests that failed here fail on JAX, too, and which do not. Of a file that cannot be imported here
    each test that passes on JAX is one; what did not run there counts as passing."""
    ran = {part for name in on_jax for part in (name, name.partition("::")[0])}
    here_only = [name for name, outcome in on_jax.items() if outcome == "passed"]
    lost = [name for name in failed if name not in ran]
    return sum(outcome == "failed" for outcome in on_jax.values()), [*here_only, *lost]


def table(rows: list[Outcome]) -> list[str]:
    """The lines of the page's table."""
    lines = ["| tests of | pass | fail here only | fail on JAX, too | skipped |", "| --- | --- | --- | --- | --- |"]
    for x in rows:
        name = pinned(x.package).replace("==", " ")
        lines.append(f"| {name} | {x.passed} | {len(x.failed)} | {x.fail_on_jax} | {x.skipped} |")
    return lines


def main() -> int:
    """Run the suites that are named, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="packages")
    parser.add_argument("--all", action="store_true", help="every test instead of the sample")
    parser.add_argument("--write", action="store_true", help="write the table of docs/jax.md")
    options = parser.parse_args()
    chosen = [suite for suite in SUITES if not options.names or suite.package in options.names]
    rows = [run_suite(suite, 1 if options.all else suite.every) for suite in chosen]
    for x in rows:
        for name in x.failed:
            print(f"{x.package}: {name} passes on JAX only: {EXCLUDED.get(name, 'not explained')}")
        print(
            f"{x.package}: {x.passed} pass, {len(x.failed)} pass on JAX only, {x.fail_on_jax} fail on JAX, too, "
            f"{x.skipped} skipped; {x.share:.1%} of those that pass on JAX; {x.seconds:.0f} s"
        )
    if options.write:
        write_table("suites", table(rows))
    return 1 if any(x.share < PROMISED or not x.passed for x in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

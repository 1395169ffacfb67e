"""`python -m tests.fuzz --minutes N`: random programs until the time is up, in processes that may crash."""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

_BATCH = 150  # cases of one process: what is compiled is not kept for ever
_HANGS = 400  # seconds after which a case is said to hang


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a regular expression: functions whose name it matches")
    parser.add_argument("--programs", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--case", type=int, help="run this one case alone, in this process")
    parser.add_argument("--batch", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--save", help="a file that differences are written to, as lines of JSON")
    return parser.parse_args()


def _environment() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _batch(seed: int, first: int, count: int, only: str) -> None:
    """Cases in this process, reported as lines of JSON."""
    _environment()
    from .runs import names_of, run_case

    names = names_of(only)
    faulthandler.enable()
    for number in range(first, first + count):
        print(json.dumps({"start": number}), flush=True)
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        program, outcome = run_case(seed, number, names, composed=not only)
        faulthandler.cancel_dump_traceback_later()
        found = [d._asdict() for d in outcome.differences]
        print(
            json.dumps(
                {
                    "name": program.name,
                    "programs": outcome.programs,
                    "accepted": outcome.accepted,
                    "differences": found,
                }
            ),
            flush=True,
        )


class Summary:
    """What all processes have reported."""

    def __init__(self, save: str | None) -> None:
        self.programs = self.cases = 0
        self.clean = 0
        self.accepted: collections.Counter[str] = collections.Counter()
        self.called: collections.Counter[str] = collections.Counter()
        self.found: dict[tuple[str, str], dict[str, Any]] = {}
        self.times: collections.Counter[tuple[str, str]] = collections.Counter()
        self.lines: collections.Counter[str] = collections.Counter()
        self.functions: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        self.save = save

    def case(self, report: dict[str, Any]) -> None:
        self.programs += report["programs"]
        self.cases += 1
        self.called[report["name"]] += 1
        self.accepted[report["name"]] += report["accepted"]
        open_differences = [d for d in report["differences"] if not self._intended(d)]
        self.clean += report["programs"] - len(open_differences)
        for d in open_differences:
            self.difference(d)

    def _intended(self, report: dict[str, Any]) -> bool:
        from .differences import Difference
        from .intended import reason_for

        line = reason_for(Difference(**report))
        if line is not None:
            self.lines[str(line)] += 1
            self.functions[str(line)].add(report["name"])
        return line is not None

    def difference(self, d: dict[str, Any]) -> None:
        key = (d["name"], f"{d['kind']} {d['way']}")
        self.times[key] += 1
        if self.save:
            with open(self.save, "a") as file:
                file.write(json.dumps(d) + "\n")
        if key in self.found:
            return
        self.found[key] = d
        print(f"\n--- {key[0]}: {key[1]}; seed {d['seed']}\n{d['detail']}\n{d['reproducer']}", flush=True)

    def end(self, seconds: float) -> None:
        from .intended import INTENDED

        total = f"{self.programs} programs of {self.cases} cases in {seconds:.0f} s"
        print(f"\n{total}, {self.clean} clean, {len(self.found)} differences:")
        for key, times in sorted(self.times.items()):
            print(f"  {key[0]}: {key[1]} ({times} times)")
        never = sorted(n for n in self.called if not self.accepted[n])
        print(f"{len(self.called)} functions called; without a successful call: {', '.join(never) or 'none'}")
        print("Intended differences by line of the table:")
        for line in INTENDED:
            print(f"  {self.lines[str(line)]} | {line.reason} | {' '.join(sorted(self.functions[str(line)])[:12])}")
        unused = [line for line in INTENDED if not self.lines[str(line)]]
        print(f"{len(unused)} of {len(INTENDED)} lines of the table of intended differences were not needed:")
        for line in unused:
            print(f"  {line.names} | {line.kind} | {line.message} | {line.reason}")


class Worker:
    """A process with a batch of cases."""

    def __init__(self, seed: int, first: int, count: int, only: str) -> None:
        command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--only", only]
        command += ["--batch", str(first), str(count)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lasts as long as the process
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.seed, self.case, self.last = seed, first, first + count

    def drain(self, summary: Summary) -> int | None:
        """Read one report. At the process's end the number of the next case, else None."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            report = json.loads(line)
            if "start" in report:
                self.case = report["start"]
            else:
                summary.case(report)
            return None
        code = self.process.wait()
        if code == 0:
            return self.last
        self.errors.seek(0)
        text = self.errors.read()
        before, hangs, stack = text.rpartition("Timeout (")
        kind = "hang" if hangs else "crash"
        innermost = next((line for line in stack.splitlines() if "File" in line and "/threading.py" not in line), "")
        if kind == "crash" or "tinyxla" in innermost:  # else it is the oracle that takes its time
            text = stack[:3000] if hangs else before[-3000:] + stack[-3000:]
            summary.difference(
                {
                    "name": f"case {self.case}",
                    "kind": kind,
                    "way": f"exit code {code}",
                    "detail": text,
                    "reproducer": f"python -m tests.fuzz --seed {self.seed} --case {self.case}",
                    "seed": (self.seed, self.case),
                }
            )
        return self.case + 1


def _main() -> int:
    given = _arguments()
    _environment()
    if given.batch:
        _batch(given.seed, *given.batch, given.only)
        return 0
    if given.case is not None:
        return _single(given.seed, given.case, given.only)
    return _run(given)


def _single(seed: int, number: int, only: str) -> int:
    from .intended import reason_for
    from .runs import drawn, names_of, run_case

    names = names_of(only)
    print(drawn(seed, number, names, composed=not only)[0].source)
    _, outcome = run_case(seed, number, names, composed=not only)
    reasons = [(d, reason_for(d)) for d in outcome.differences]
    for d, line in reasons:
        intended = f" (intended: {line.reason})" if line else ""
        print(f"--- {d.name}: {d.kind} {d.way}{intended}\n{d.detail}\n{d.reproducer}")
    return any(line is None for _, line in reasons)


def _run(given: argparse.Namespace) -> int:
    import threading

    summary, start = Summary(given.save), time.monotonic()
    lock, following = threading.Lock(), iter(range(0, 10**12, _BATCH))

    def over() -> bool:
        return time.monotonic() - start > given.minutes * 60 or summary.programs >= given.programs

    def work() -> None:
        while not over():
            with lock:
                first = next(following)
            last = first + _BATCH
            while first < last and not over():
                worker, resumed = Worker(given.seed, first, last - first, given.only), None
                while resumed is None and not over():
                    resumed = worker.drain(summary)
                if resumed is None:
                    worker.process.kill()
                    break
                first = resumed
            print(f"{summary.programs} programs of {summary.cases} cases, {summary.clean} clean", flush=True)

    threads = [threading.Thread(target=work) for _ in range(given.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary.end(time.monotonic() - start)
    return bool(summary.found)


if __name__ == "__main__":
    sys.exit(_main())

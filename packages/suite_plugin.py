"""A pytest plugin for `suites.py`: runs a fixed sample of the tests, and writes the outcome of each to a file.

`SUITE_EVERY=k` keeps the tests whose hash of the name is divisible by k; `SUITE_OUTCOMES` names the file.
"""

import json
import os
import zlib
from pathlib import Path

import pytest

WORST = "passed", "skipped", "failed"
outcomes: dict[str, str] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the sample."""
    every = int(os.environ.get("SUITE_EVERY", "1"))
    dropped = [item for item in items if zlib.crc32(item.nodeid.encode()) % every]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % every == 0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test by the worst of its set-up, call, subtests and tear-down."""
    record(report.nodeid, report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported counts as one test that fails."""
    if report.failed:
        record(report.nodeid, report.outcome)


def record(name: str, outcome: str) -> None:
    """Keep the worse of two outcomes."""
    outcomes[name] = max(outcomes.get(name, "passed"), outcome, key=WORST.index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes, in the process that gathers those of all workers."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["SUITE_OUTCOMES"]).write_text(json.dumps(outcomes))

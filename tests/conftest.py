"""Rules for every test: in CI nothing is left out, so a skip is a failure there; and nothing outlives its run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.reaper import reaped

ROOT = Path(__file__).parent.parent
IN_CI = os.environ.get("CI", "").lower() == "true"

# The same examples in each run of CI, which is to tell of the change and not of luck; elsewhere ever new ones. An
# example takes as long as the machine lets it: tests of what something costs measure that themselves.
settings.register_profile(
    "tests", derandomize=IN_CI, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

if sys.dont_write_bytecode:
    # The adapter is started some hundred times, and is not to be compiled each time; nor are the tests by each worker.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its reaper."""
    run = ExitStack()
    run.enter_context(reaped())
    config.add_cleanup(run.close)


def pytest_collection_finish() -> None:
    """Leave what was collected, a million objects, out of every look of the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns a skip into a failure when CI=true; an expected failure stays what it is."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module that skips itself while it is collected."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report

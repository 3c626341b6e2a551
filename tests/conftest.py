"""Rules for every test: a skip is a failure in CI, and no process outlives its run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.missing import Missing
from tests.reaper import reaped

if TYPE_CHECKING:
    from tests.edge.attaching import FileHost
    from tests.hosted.databases import Server

ROOT = Path(__file__).parent.parent
IN_CI = os.environ.get("CI", "").lower() == "true"

# CI uses the same examples in each run, so that only a change makes a test fail; elsewhere examples are random. They
# have no deadline, because a busy machine would miss it; tests of costs measure CPU time themselves.
settings.register_profile(
    "deep", max_examples=50, derandomize=IN_CI, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("deep"), max_examples=20)
settings.load_profile("deep")

# jsonschema makes grammars of IRIs of it, which takes each worker three seconds; no schema of a test has an IRI.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

if sys.dont_write_bytecode:
    # Tests start the adapter some hundred times, and each worker imports all tests: compile them only once.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


def pytest_configure(config: pytest.Config) -> None:
    """Start the reaper of the run, and choose how many examples property tests take."""
    if _is_quick(config):
        settings.load_profile("quick")
    run = ExitStack()
    run.enter_context(reaped())
    config.add_cleanup(run.close)


DEEP = frozenset(("attacks", "bench", "e2e", "faults", "soak"))
"""Folders of tests that take minutes: whole processes, other people's clients, attacks, faults, a browser."""


def _is_quick(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not deep")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module of which each test is deep, where none of these is wanted."""
    deep = collection_path.name in DEEP and collection_path.is_dir()
    return True if deep and _is_quick(config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark ``deep`` for what ``make test-deep`` runs, and ``examples`` for what it runs with many examples.

    Tests that measure time are among the former.
    """
    for item in items:
        folders = item.nodeid.partition("::")[0].split("/")
        if not DEEP.isdisjoint(folders) or any(map(item.get_closest_marker, ("e2e", "timed"))):
            item.add_marker(pytest.mark.deep)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.examples)


def pytest_collection_finish() -> None:
    """Exclude the million objects of collected tests from garbage collection, which tests trigger often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """One Redis server for all tests that ask for it, each with keys of its own."""
    # Late, as below: most tests need no driver of Redis.
    from tests.state.redis import servers

    with servers.single() as server:
        yield server


@pytest.fixture(scope="session")
def replicas_programs() -> None:
    """nginx and Redis, without which there are no replicas."""
    from tests.e2e.replicas import redis_program
    from tests.nginx import nginx_program

    nginx_program()
    redis_program()


@pytest.fixture
def own_redis() -> Iterator[Server]:
    """A Redis server of the test's own, that it may stop."""
    from tests.state.redis import servers

    with servers.single() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skips a test whose fixtures need something that this machine lacks."""
    try:
        return (yield)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The same for a test that asks for it by itself."""
    try:
        return (yield)
    except Missing as missing:
        pytest.skip(str(missing))


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


@pytest.fixture
async def depot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FileHost]:
    """A server of files over https, whose authority the machine trusts."""
    from tests.edge.attaching import file_host

    server, certificate = file_host(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with server.running():
        yield server

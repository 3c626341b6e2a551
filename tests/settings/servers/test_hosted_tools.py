"""Servers that the adapter hosts itself: what their settings hold, and what contradicts itself in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from adapter.settings.file.load import SettingsError
from tests.settings.loading import loaded
from tests.test_cli import mcp_adapter

CONNECTORS = "connectors: [{name: main, connector: sqlite, connection_string: 'a.db'}]\n"


def hosting(tools: str, more: str = "", upstream: str = "") -> str:
    """A file with one hosted server; ``tools`` are its tools, ``more`` its other keys."""
    return (
        f"{CONNECTORS}servers: [{{id: a, upstream: {{transport: hosted{upstream}}}, tools: {tools}{more}}}]\n"
    )


def test_a_hosted_server_needs_no_address(file: Path) -> None:
    """A tool is a statement for a connector, or a script; everything else has its default."""
    text = "{define: [{name: q, use: main, statement: SELECT 1}, {name: s, handler: s.py, limits: {timeout: 2m}}]}"
    settings = loaded(file, hosting(text))
    (server,) = settings.servers
    assert (server.upstream.transport, server.upstream.url) == ("hosted", None)
    statement, script = server.tools.define
    assert (statement.runtime, statement.inputs, statement.cache.enabled) == ("inprocess", {}, None)
    assert script.limits.timeout == 120
    assert (server.tools.cache.enabled, server.tools.cache.ttl, server.tools.cache.max_bytes) == (
        False,
        120,
        128 << 20,
    )
    (connector,) = settings.connectors
    assert (connector.max_rows, connector.timeout_seconds, connector.required) == (1000, 10, True)
    assert settings.directory == file.parent


STATEMENT = "{name: q, use: main, statement: SELECT 1}"
DEFINE = "servers[0].tools.define"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (hosting("{}"), f"{DEFINE}: is required for upstream.transport hosted"),
        (hosting("{define: [{name: q}]}"), f"{DEFINE}[0]: q has neither of use and handler"),
        (
            hosting("{define: [{name: q, use: main, statement: x, handler: y.py}]}"),
            f"{DEFINE}[0]: q has both of use and handler",
        ),
        (hosting("{define: [{name: q, use: main}]}"), f"{DEFINE}[0].statement: is required"),
        (hosting("{define: [{name: q, handler: a.py, statement: x}]}"), f"{DEFINE}[0].use: is required"),
        (
            hosting("{define: [{name: q, use: other, statement: x}]}"),
            f"{DEFINE}[0].use: there is no connector with the name other",
        ),
        (
            hosting("{define: [{name: q, use: main, statement: x, runtime: subprocess}]}"),
            f"{DEFINE}[0].runtime: is only for scripts",
        ),
        (
            hosting("{define: [{name: q, handler: a.py, cache: {enabled: true}}]}"),
            f"{DEFINE}[0].cache: is only for read-only statements",
        ),
        (
            hosting("{define: [{name: q, use: main, statement: x, cache: {ttl: 5}}]}"),
            f"{DEFINE}[0].cache: configures a cache that is not enabled: add enabled: true",
        ),
        (
            hosting(f"{{define: [{STATEMENT}, {STATEMENT}]}}"),
            f"{DEFINE}[1].name: q is already the name of define[0]",
        ),
        (
            hosting(f"{{define: [{STATEMENT}]}}", upstream=", url: 'http://u/'"),
            "servers[0].upstream.url: is not for hosted servers",
        ),
        (
            f"servers: [{{id: a, upstream: {{url: 'http://u/'}}, tools: {{define: [{STATEMENT}]}}}}]",
            f"{DEFINE}: is only for hosted servers",
        ),
        (hosting("{define: [{name: 'a b', handler: x}]}"), f"{DEFINE}[0].name: must be 1 to 128"),
        (
            hosting("{define: [{name: q, handler: x, limits: {timeout: soon}}]}"),
            f"{DEFINE}[0].limits.timeout: must be seconds, or text such as 250ms",
        ),
        (
            hosting("{define: [{name: q, handler: x, annotations: {readOnlyHint: 'yes'}}]}"),
            f"{DEFINE}[0].annotations: readOnlyHint must be true or false",
        ),
        (
            hosting("{define: [{name: q, handler: x, inputs: {n: {typ: int, type: int}}}]}"),
            f"{DEFINE}[0].inputs.n: typ is not a known key; the nearest is type",
        ),
        (hosting("{define: [], dir: tools}"), "servers[0].tools.dir: is not a known key"),
        (
            CONNECTORS.replace("]", ", {name: MAIN, connector: redis, connection_string: x}]")
            + "servers: [{id: a, upstream: {url: 'http://u/'}}]",
            "connectors[1].name: MAIN is already the name of connectors[0]",
        ),
    ],
)
def test_what_does_not_fit_together_is_named(file: Path, text: str, problem: str) -> None:
    """With its place in the file and what to do about it."""
    with pytest.raises(SettingsError) as refused:
        loaded(file, text)
    assert problem in str(refused.value)


def test_a_date_is_the_text_that_was_written(file: Path) -> None:
    """YAML reads it as a date of its own, which no input would take."""
    text = "{define: [{name: q, handler: x, inputs: {at: {type: datetime, default: DATE, enum: [DATE]}}}]}"
    for date in ("2026-01-02", "2026-01-02 03:04:05", "2026-01-02T03:04:05+02:00"):
        (server,) = loaded(file, hosting(text.replace("DATE", date))).servers
        declared = server.tools.define[0].inputs["at"]
        assert (declared.default, declared.enum) == (date, [date])


def test_check_judges_statements_and_hides_connections(file: Path) -> None:
    """What would not start does not pass; what is shown holds no connection string and no option."""
    text = hosting(f"{{define: [{STATEMENT}]}}").replace("'a.db'", "'s3cret.db', options: {mode: ro}")
    file.write_text(text)
    done = mcp_adapter("check", "--config", file)
    assert done.returncode == 2 and "the database file does not exist" in done.stderr
    assert "s3cret" not in done.stderr
    (file.parent / "s3cret.db").touch()
    done = mcp_adapter("check", "--effective", "--config", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "s3cret" not in done.stdout
    shown = yaml.safe_load(done.stdout)
    assert shown["connectors"][0]["connection_string"] == "***"
    assert shown["connectors"][0]["options"] == {"mode": "***"}
    file.write_text(text.replace("SELECT 1", "'SELECT {{ inputs.x }}'"))
    done = mcp_adapter("check", "--config", file)
    assert done.returncode == 2 and f"{DEFINE}[0].statement: " in done.stderr


def test_a_database_that_is_not_there_is_one_line(file: Path) -> None:
    """``serve`` ends with status 1, and neither a traceback nor the connection string."""
    file.write_text("core: {port: 0}\n" + hosting(f"{{define: [{STATEMENT}]}}").replace("a.db", "s3cret.db"))
    done = mcp_adapter("serve", "--config", file, "--set", f"storage.root={file.parent / 'data'}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "connector 'main' (sqlite): the database file does not exist" in line and "s3cret" not in line

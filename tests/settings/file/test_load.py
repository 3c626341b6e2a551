"""What a settings file may say, what wins, and how a mistake is told."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest

from adapter.settings.file.load import SettingsError, load
from adapter.settings.reference_page import reference
from tests.settings.loading import loaded, refusal

SERVER = {"id": "a", "upstream": {"url": "http://127.0.0.1:1/mcp"}}
ONE_SERVER = "servers: [{id: a, upstream: {url: 'http://127.0.0.1:1/mcp'}}]\n"


def server(body: str) -> str:
    return f"servers:\n  - {{id: a, upstream: {{url: 'http://u/mcp'}}, {body}}}\n"


def test_a_server_is_all_that_is_needed(file: Path) -> None:
    """Everything else has its documented default, and the mount follows the id."""
    settings = loaded(file, ONE_SERVER)
    assert (settings.core.host, settings.core.port, settings.core.max_request_bytes) == (
        "127.0.0.1",
        8932,
        4 << 20,
    )
    assert settings.servers[0].mount_path == "/mcp/a"
    assert settings.state_path == Path("data/state/adapter.sqlite3")


def test_a_path_may_begin_with_a_home(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the files of clients, which a shell has not read either."""
    monkeypatch.setenv("HOME", "/home/ada")
    upstream = "{transport: stdio, command: ~/bin/run, cwd: ~/proj}"
    read = loaded(file, f"servers: [{{id: a, upstream: {upstream}}}]\n").servers[0].upstream
    assert (read.command, read.cwd) == ("/home/ada/bin/run", Path("/home/ada/proj"))


def test_flags_win_over_environment_wins_over_file(file: Path) -> None:
    """Each layer replaces single values of the one below it and leaves the rest."""
    text = ONE_SERVER + "core: {port: 1, host: h1, log_level: error}\n"
    environ = {"ADAPTER_CORE__PORT": "2", "ADAPTER_CORE__HOST": "h2"}
    core = loaded(file, text, environ, core__port=3).core
    assert (core.port, core.host, core.log_level) == (3, "h2", "error")


def test_the_environment_alone_can_configure(file: Path) -> None:
    """Lists take JSON or commas, entries their number; variables that name no section are somebody else's."""
    settings = load(
        None,
        environ={
            "ADAPTER_SERVERS": '[{"id": "a", "upstream": {"url": "http://u/mcp"}}]',
            "ADAPTER_SERVERS__0__UPSTREAM__URL": "http://v/mcp",
            "ADAPTER_CORE__ALLOWED_HOSTS": "one.example, two.example:81",
            "ADAPTER_CORE__PUBLIC_BASE_URL": "",
            "ADAPTER_PORT": "tcp://10.0.0.1:80",
        },
    )
    assert settings.servers[0].upstream.url == "http://v/mcp"
    assert settings.core.allowed_hosts == ["one.example", "two.example:81"]
    assert settings.core.public_base_url is None


def test_variables_are_filled_in(file: Path) -> None:
    """``${VAR}`` and ``${VAR:-default}`` work in any string, also where a number is wanted."""
    text = "core: {port: '${PORT:-81}', host: '${HOST}'}\n" + server("mount_path: '/${A:-x}/${A:-y}'")
    settings = loaded(file, text, {"HOST": "0.0.0.0"})
    assert (settings.core.port, settings.core.host, settings.servers[0].mount_path) == (81, "0.0.0.0", "/x/y")


def test_a_variable_that_is_not_set_is_named(file: Path) -> None:
    """A missing variable is an error at its place in the file."""
    said = refusal(file, "servers: [{id: a, upstream: {url: 'http://${UPSTREAM_HOST}/mcp'}}]")
    assert said.startswith("servers[0].upstream.url: the environment variable UPSTREAM_HOST is not set")


DURATIONS = [
    ("30s", 30.0),
    ("2m", 120.0),
    ("1h30m", 5400.0),
    (" 1h 30m ", 5400.0),
    ("500ms", 0.5),
    ("1.5s", 1.5),
    ("1d", 86400.0),
    ("1m0.5s", 60.5),
    ("60", 60.0),
    ("0.25", 0.25),
    (7, 7.0),
    (0.5, 0.5),
]


@pytest.mark.parametrize(("written", "seconds"), DURATIONS)
@pytest.mark.parametrize(
    "key", ["core.shutdown_grace_seconds", "artifacts.ttl_seconds", "core.defaults.tool_call_timeout_seconds"]
)
def test_durations(file: Path, key: str, written: object, seconds: float) -> None:
    """Every setting that is a time takes a number of seconds or text with units, null or 0 allowed or not."""
    settings = load(None, environ={}, overrides={"servers": [SERVER], key: written})
    found: object = reduce(getattr, key.split("."), settings)
    assert found == seconds


def test_every_time_is_a_duration(file: Path) -> None:
    """No key of the file that names seconds takes numbers only."""
    rows = [line.split("|") for line in reference().splitlines() if line.startswith("| `")]
    kinds = {row[1].strip(): row[2].strip() for row in rows}
    times = {key: kind for key, kind in kinds.items() if "_seconds`" in key}
    assert len(times) > 20
    assert {key: kind for key, kind in times.items() if not kind.startswith("duration")} == {}


@pytest.mark.parametrize("written", ["soon", "1x", "1m m", "-5s", "1h30", "", "0x10", True, "ms"])
def test_no_duration(file: Path, written: object) -> None:
    """The sentence shows how to write one."""
    told = refusal(file, ONE_SERVER, sessions__round_ttl_seconds=written)
    assert told.startswith(
        "sessions.round_ttl_seconds (from the command line): must be seconds, or text such as 250ms"
    )


@pytest.mark.parametrize(
    ("written", "why"), [("0s", "greater than 0"), ("inf", "finite"), ("-1", "greater than 0")]
)
def test_a_duration_out_of_range(file: Path, written: str, why: str) -> None:
    """A time that must not be zero stays one, however zero is written."""
    assert why in refusal(file, ONE_SERVER, sessions__round_ttl_seconds=written)


@pytest.mark.parametrize(
    ("written", "size"),
    [("10Mi", 10 << 20), ("5MB", 5_000_000), ("5M", 5_000_000), ("2 KiB", 2048), ("7", 7), ("8b", 8), (9, 9)],
)
def test_byte_sizes(file: Path, written: object, size: int) -> None:
    """``Mi`` is 1024², ``M`` and ``MB`` are 1000², a plain number is bytes."""
    assert loaded(file, ONE_SERVER, core__max_request_bytes=written).core.max_request_bytes == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("core: {prot: 1}", "core.prot: is not a known key; the nearest is port"),
        ("sesions: {}", "sesions: is not a known key; the nearest is sessions"),
        (
            server("upstram_ping: {}"),
            "servers[0].upstram_ping: is not a known key; the nearest is upstream_ping",
        ),
        (
            server("adapters: [{type: upload_consumer, tools: [t], file_path_argument: p, delivry: path}]"),
            "servers[0].adapters[0].delivry: is not a known key; the nearest is delivery",
        ),
        ("core: {port: many}", "core.port: must be a whole number"),
        ("core: {host: 5}", "core.host: must be text; put it in quotes"),
        ("core: {readiness: some}", "core.readiness: must be any or all"),
        ("core: {max_request_bytes: 4Q}", "core.max_request_bytes: must be a byte size such as 10Mi"),
        ("core: 5", "core: must be a section with keys"),
        ("core: {allowed_origins: ['*']}", "core.allowed_origins: '*' is not an origin"),
        (
            "core: {trusted_proxies: [10.0.0.0/99]}",
            "core.trusted_proxies[0]: must be an address or a network",
        ),
        ("core: {auth: {enabled: true}}", "core.auth: enabled is true, but neither token nor tokens is set"),
        (
            "core: {auth: {enabled: true, token: '${NONE:-}'}}",
            "core.auth: enabled is true, but neither token",
        ),
        ("core: {auth: {tokens: [{name: n}]}}", "core.auth.tokens[0]: needs either token or sha256"),
        (
            "core: {auth: {tokens: [{name: n, sha256: abc}]}}",
            "core.auth.tokens[0].sha256: must be 64 hexadecimal",
        ),
        ("core: {port: 1}\ncore: {port: 2}", "the key core occurs twice here, line 2"),
        ("core: [", "is not valid YAML"),
        (
            "core: {port: ${PORT}}",
            'within { } or [ ] a variable needs quotes, as in {port: "${PORT}"}, line 1',
        ),
        ("core:\n  allowed_hosts: [${HOST:-a}, b]", "a variable needs quotes, as in"),
        ("- core", "must contain a mapping of sections"),
        ("servers: []", "servers: no server is configured"),
        ("", "servers: no server is configured"),
        ("servers: [{upstream: {url: 'http://u/'}}]", "servers[0].id: is required"),
        (
            "servers: [{id: -a, upstream: {url: 'http://u/'}}]",
            "servers[0].id: must begin with a letter or digit",
        ),
        ("servers: [{id: a}]", "servers[0].upstream: is required"),
        ("servers: [{id: a, upstream: {}}]", "servers[0].upstream.url: is required for the transport"),
        (
            "servers: [{id: a, upstream: {url: 'ftp://u'}}]",
            "servers[0].upstream.url: must be an http:// or https://",
        ),
        (
            "servers: [{id: a, upstream: {url: 'http://'}}]",
            "servers[0].upstream.url: must be an http:// or https://",
        ),
        (
            server("disabled_tools: ['(']"),
            "servers[0].disabled_tools: '(' is not a valid regular expression of RE2",
        ),
        (
            server("disabled_tools: ['a(?=b)']"),
            "servers[0].disabled_tools: 'a(?=b)' is not a valid regular expression of RE2: invalid perl operator",
        ),
        (server("mount_path: /"), "servers[0].mount_path: must be a path below /"),
        (server("mount_path: /a/../b"), "servers[0].mount_path: must be a plain path"),
        (server("mount_path: /livez/"), "servers[0].mount_path: /livez is a route of the adapter itself"),
        (server("mount_path: /artifacts/x"), "servers[0].mount_path: /artifacts/x is a route of the adapter"),
        (server("mount_path: /upload"), "servers[0].mount_path: /upload is below core.upload_path"),
        (
            server(
                "adapters: [{type: artifact_producer, tools: [t]}, {type: artifact_producer, tools: [t]}]"
            ),
            "servers[0].adapters[1].tools: the tool t is already in adapters[0]; a tool may be in one "
            "artifact_producer only",
        ),
        (
            server(
                "adapters: [{type: upload_consumer, tools: [t], file_path_argument: p}, "
                "{type: upload_consumer, tools: [s, t], file_path_argument: q}]"
            ),
            "servers[0].adapters[1].tools: the tool t is already in adapters[0]",
        ),
        (
            server(
                "adapters: [{type: artifact_producer, tools: [t], output_path_argument: file.path}, "
                "{type: upload_consumer, tools: [t], file_path_argument: 'file[]'}]"
            ),
            "servers[0].adapters[0].output_path_argument: file.path of t is already",
        ),
        (
            server(
                "adapters: [{type: upload_consumer, tools: [t], file_path_argument: p}, "
                "{type: artifact_producer, tools: [a_get_upload_url]}]"
            ),
            "servers[0].adapters[1].tools: a_get_upload_url is the name of the adapter's own tool",
        ),
        (
            server("adapters: [{type: artifact_producer, tools: [a_read_artifact]}]"),
            "servers[0].adapters[0].tools: a_read_artifact is the name of the adapter's own tool for reading",
        ),
        (
            "artifacts: {enabled: false}\n" + server("stages: {'*': {large_results: {}}}"),
            "artifacts.enabled: is required for large_results",
        ),
        (
            server("stages: {'*': {large_results: {above: 16Ki, preview: 9Ki}}}"),
            "preview may be at most half of above",
        ),
        (server("stages: {'*': {large_results: {above: 4Ki}}}"), "large_results.above"),
    ],
)
def test_a_mistake_is_told_at_its_place(file: Path, text: str, said: str) -> None:
    """Every error names the path in the file and says in a sentence what is wrong."""
    assert said in refusal(file, text)


def test_a_tool_may_take_a_file_and_produce_one(file: Path) -> None:
    """One entry of each type, in any order, and with arguments of their own."""
    adapters = (
        "adapters: [{type: artifact_producer, tools: [t], output_path_argument: out.path}, "
        "{type: upload_consumer, tools: [t], file_path_argument: 'in.path'}]"
    )
    assert len(loaded(file, server(adapters)).servers[0].adapters) == 2


@pytest.mark.parametrize(
    ("consumer", "uploads"),
    [("{type: upload_consumer, tools: [t], file_path_argument: p}, ", "false"), ("", "true")],
    ids=["uploads are off", "nothing takes files"],
)
def test_without_a_helper_tool_its_name_is_free(file: Path, consumer: str, uploads: str) -> None:
    """Where the adapter adds no tool of its own, a tool of the upstream may have that name."""
    adapters = f"adapters: [{consumer}{{type: artifact_producer, tools: [a_get_upload_url]}}]"
    assert loaded(file, f"uploads: {{enabled: {uploads}}}\n" + server(adapters)).servers[0].adapters


def test_ids_and_mounts_are_unique(file: Path) -> None:
    """Ids are compared without case, mounts after normalizing."""
    text = (
        "servers: [{id: a, upstream: {url: 'http://u/'}}, "
        "{id: A, mount_path: 'mcp/a/', upstream: {url: 'http://u/'}}]"
    )
    assert refusal(file, text).splitlines() == [
        "servers[1].id: A is already the id of servers[0]",
        "servers[1].mount_path: /mcp/a is already the mount_path of servers[0]",
    ]


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    """One run names every bad field, with the variable or flag it came from."""
    said = refusal(
        file, "core: {readiness: 1}", {"ADAPTER_CORE__PORT": "x"}, sessions__max_active="0"
    ).splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "core.port (from ADAPTER_CORE__PORT)",
        "core.readiness",
        "sessions.max_active (from the command line)",
    ]


def test_a_refused_secret_is_not_shown(file: Path) -> None:
    """An error never quotes the value of a field."""
    said = refusal(file, "core: {auth: {token: [s3cret]}}\n" + server("static_headers: s3cret"))
    assert "s3cret" not in said


@pytest.mark.parametrize("spelling", ["http", "streamable-http", "STREAMABLE_HTTP"])
def test_other_spellings_of_the_transport(file: Path, spelling: str) -> None:
    """The names other tools use for streamable HTTP mean the same."""
    text = f"servers: [{{id: a, upstream: {{url: 'http://u/', transport: {spelling}}}}}]"
    assert loaded(file, text).servers[0].upstream.transport == "streamable_http"


def test_a_server_overrides_ping_and_tool_defaults(file: Path) -> None:
    """What a server says wins over core, what it leaves out or null stays as core says."""
    text = "core: {upstream_ping: {failure_threshold: 9}}\n" + server(
        "upstream_ping: {interval_seconds: 1, timeout_seconds: null}, "
        "tool_defaults: {tool_call_timeout_seconds: 5}"
    )
    settings = loaded(file, text)
    ping, tools = settings.ping_for(settings.servers[0]), settings.tool_defaults_for(settings.servers[0])
    assert (ping.interval_seconds, ping.timeout_seconds, ping.failure_threshold) == (1, 5, 9)
    assert (tools.tool_call_timeout_seconds, tools.allow_raw_output) == (5, False)


def test_an_empty_section_is_its_default(file: Path) -> None:
    """A key with nothing behind it, as a commented-out section leaves it, changes nothing."""
    assert loaded(file, "core:\nsessions: {scope: }\n" + ONE_SERVER).sessions.scope == "session"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is a sentence, not a traceback."""
    with pytest.raises(SettingsError, match="there is no such file"):
        load(tmp_path / "none.yaml", environ={})

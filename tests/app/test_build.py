"""The code that an adapter loads is the code of what its settings ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

USUAL = {"upstream": {"url": "http://127.0.0.1:9/mcp"}, "id": "one"}
TAKER = {"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"}

RUN = """
import asyncio, json, sys
from pathlib import Path
from adapter.settings.file.reading import ForkedRead, ReadSettings
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError

def read() -> ReadSettings:
    from adapter.settings.file.load import load

    return ReadSettings(load(Path(sys.argv[1])), ())

reading = ForkedRead(read, SettingsError, ChildProcessError())
from adapter.app import build, running

async def main() -> None:
    async with running(build(reading.result().settings)):
        print(json.dumps(list(sys.modules)))

asyncio.run(main())
"""

DESCRIBE = """
import json, sys
from adapter import cli
try:
    cli.run(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
print(json.dumps(list(sys.modules)))
"""

PLANS = ("adapter.pipeline", "adapter.hosted", "adapter.rules.schema", "adapter.rules.presenters", "re2")
FILES = (
    "adapter.files",
    "adapter.edge.files",
    "adapter.relay.files.file_registry",
    "adapter.rules.files.redaction",
)
CONSOLE = (
    "adapter.edge.console",
    "adapter.edge.api",
    "adapter.relay.http_api.recent_exchanges",
    "adapter.relay.http_api.sessions",
    "adapter.rules.calls.tool_api",
    "gzip",
)
CODE_MODE = ("adapter.relay.tools.code_mode", "adapter.rules.tools.code_mode", "adapter.rules.tools.search")
READING = (
    "adapter.settings.consistency",
    "adapter.settings.file.load",
    "adapter.settings.reference_page",
    "importlib.metadata",
    "pydantic.plugin._loader",
    "yaml",
)
ELSEWHERE = (
    "adapter.commands",
    "adapter.relay.sessions.shared_sessions",
    "adapter.rules.statements",
    "adapter.telemetry.signals",
    "adapter.upstream.local",
    "adapter.upstream.sse",
    "adapter.upstream.stdio",
    "aiohttp",
    "cryptography",
    "ctypes",
    "difflib",
    "email",
    "jsonschema",
    "jwt",
    "mcp",
    "multiprocessing",
    "opentelemetry",
    "python_multipart",
    "rich",
)


def loaded(*arguments: str | Path, program: str) -> set[str]:
    """The modules, and the packages around them, that a Python of its own has loaded at the end of a program."""
    environ = {name: value for name, value in os.environ.items() if not name.upper().startswith("ADAPTER_")}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def adapter_with(place: Path, server: dict[str, object], **sections: object) -> set[str]:
    """The modules of an adapter that listens in front of one server."""
    settings = {
        "core": {"port": 0, "auth": {"enabled": True, "token": "a-token-of-some-length"}},
        "servers": [USUAL | server],
        "storage": {"root": str(place / "files")},
        **sections,
    }
    file = place / "config.yaml"
    file.write_text(yaml.safe_dump(settings))
    return loaded(file, program=RUN)


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of an adapter that pipes one upstream, with its console on."""
    return adapter_with(tmp_path_factory.mktemp("rest"), {})


@pytest.mark.parametrize("package", [*PLANS, *FILES, *CONSOLE, *CODE_MODE, *READING, *ELSEWHERE])
def test_a_proxy_of_one_upstream_leaves_the_rest_unloaded(at_rest: set[str], package: str) -> None:
    """Each of these costs memory in every adapter and time at every start."""
    assert package not in at_rest


@pytest.mark.parametrize(
    ("server", "packages"),
    [
        ({"stages": {"*": {"limits": {"rate": {"max": 1, "window": 1}}}}}, PLANS[:-1]),
        ({"adapters": [TAKER]}, FILES),
        ({"code_mode_enabled": True}, CODE_MODE),
        ({"disabled_tools": ["delete_.*"]}, ["re2"]),
        ({"upstream": {"transport": "stdio", "command": "cat"}}, ["adapter.upstream.stdio.server"]),
        (
            {"upstream": {"transport": "sse", "url": "http://127.0.0.1:9/sse"}},
            ["adapter.upstream.sse.session"],
        ),
    ],
    ids=["stages", "files", "code mode", "expressions", "processes", "streams"],
)
def test_the_code_of_a_feature_is_loaded_before_the_first_request(
    tmp_path: Path, server: dict[str, object], packages: tuple[str, ...]
) -> None:
    """The loop would stand still for imports."""
    assert set(packages) <= adapter_with(tmp_path, server)


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_the_command_line_describes_itself_without_settings(flag: str) -> None:
    """Only argparse is needed for it."""
    modules = loaded(flag, program=DESCRIBE)
    assert not {"pydantic", "yaml", "asyncio", "adapter.settings", "adapter.app"} & modules
    assert not {"importlib.metadata", "shutil", "bz2", "lzma"} & modules

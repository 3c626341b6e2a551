"""The extras of the package: which one a missing module belongs to, and the line that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from adapter.extras import MODULES, extra_of, install_line, is_installed, missing_extras
from tests.test_cli import ROOT, mcp_adapter

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_extra_for_users_is_known() -> None:
    """What pyproject.toml declares is what errors name; the extra ``all`` is all of them."""
    assert set(MODULES) == set(EXTRAS) - {"all", "dev", "docs"}
    assert re.findall(r"\w+", EXTRAS["all"][0].partition("[")[2]) == sorted(MODULES)


def test_all_are_installed_where_tests_run() -> None:
    """Nothing is missing there, so nothing is said."""
    assert all(map(is_installed, MODULES)) and missing_extras(*MODULES) is None


@pytest.mark.parametrize(("module", "extra"), [("mcp.client.auth", "client"), ("jwt", "oauth"), ("os", None)])
def test_a_missing_module_has_an_extra(module: str, extra: str | None) -> None:
    """A part of a library counts as the library; a module that no extra brings has none."""
    assert extra_of(ModuleNotFoundError("gone", name=module)) == extra


LINES = {
    "uv-receipt.toml": "uv tool install --force 'mcp-file-adapter[",
    "archive-v0/abc": "uvx --from 'mcp-file-adapter[",
    "venvs/pipx_metadata.json": "pipx install --force 'mcp-file-adapter[",
    "ab12/pipx_metadata.json": "pipx run --spec 'mcp-file-adapter[",
}


@pytest.mark.parametrize("mark", LINES)
def test_the_line_is_that_of_the_installer(mark: str, tmp_path: Path) -> None:
    """What uv and pipx leave in an environment decides who is to install; extras that are here stay."""
    prefix = tmp_path / Path(mark).parent / "mcp-file-adapter"
    (prefix / Path(mark).name).parent.mkdir(parents=True)
    (prefix / Path(mark).name).touch()
    # A package of this name without a note on where it came from, as from an index.
    info = tmp_path / "site" / "mcp_file_adapter-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mcp-file-adapter\nVersion: 1\n")
    program = (
        f"import sys; sys.path[:0] = [{str(info.parent)!r}, {str(ROOT)!r}]; sys.prefix = {str(prefix)!r}\n"
        "sys.modules['mcp'] = None\n"
        "from adapter.extras import install_line, typed_command; print(install_line('client')); print(typed_command())"
    )
    done = subprocess.run([sys.executable, "-Sc", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(LINES[mark]), done.stdout + done.stderr
    line, typed = done.stdout.splitlines()
    assert "[client" in line and "[client" not in typed
    # Only what stays installed is on the PATH.
    assert typed.startswith(LINES[mark].partition("'")[0] if line.endswith("…") else "mcp-adapter"), typed


def test_an_environment_of_sources_is_linked_again() -> None:
    """Where the package is linked to its sources, the line links it again, with all extras that are here."""
    assert f"[{','.join(sorted(MODULES))}]" in install_line("oauth")


WITHOUT = """
import sys
for name in ("mcp", "mcp_types", "httpx2", "jwt", "cryptography", "aiohttp", "jsonschema_rs"):
    sys.modules[name] = None
"""

SERVER = "servers: [{{id: a, upstream: {{url: 'http://127.0.0.1:9/mcp'{auth}}}{more}}}]\n"
FILES = ", adapters: [{type: upload_consumer, tools: [t], file_path_argument: path}]"
NEEDS = [
    (SERVER.format(auth=", auth: {type: passthrough}", more=""), "oauth"),
    (SERVER.format(auth="", more="") + "console: {enabled: true}\n", "hosted"),
    (SERVER.format(auth="", more=", stages: {x: {}}"), "hosted"),
    (SERVER.format(auth="", more=FILES + ", hosts: {openai_file_params: on}"), "http"),
]


@pytest.mark.parametrize(("settings", "extra"), NEEDS)
@pytest.mark.parametrize("command", ["check", "serve"])
def test_settings_without_their_library_are_a_sentence(
    settings: str, extra: str, command: str, tmp_path: Path
) -> None:
    """``check`` and ``serve`` name the extra and its setting, without a traceback and before anything listens."""
    (tmp_path / "config.yaml").write_text(settings)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    said = ("--config", tmp_path / "config.yaml", "--set", f"storage.root={tmp_path / 'data'}", "--port", "0")
    done = mcp_adapter(command, *said, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
    assert f"needs the extra {extra} of mcp-file-adapter: " in done.stderr


def test_a_plain_relay_that_moves_files_needs_no_extra(tmp_path: Path) -> None:
    """Uploads and artifacts of a server are part of what comes without extras."""
    (tmp_path / "config.yaml").write_text(SERVER.format(auth="", more=FILES))
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    done = mcp_adapter("check", "--config", tmp_path / "config.yaml", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 0, done.stderr


def test_no_client_is_told_to_start_what_needs_an_extra(tmp_path: Path) -> None:
    """``install --stdio`` names the line that adds it, and writes nothing; Claude Desktop gets another program."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    file = tmp_path / "mcp.json"
    flags = ("--url", "http://127.0.0.1:9/mcp", "--stdio", "--file", file, "--yes")
    done = mcp_adapter("install", "cursor", *flags, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 1 and not file.exists()
    assert "mcp-adapter connect, which --stdio starts, needs the extra client" in done.stderr
    done = mcp_adapter("install", "claude-desktop", *flags[:2], *flags[3:], PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 0 and "mcp-remote" in file.read_text(), done.stderr


def test_another_package_in_the_same_folder_is_named(tmp_path: Path) -> None:
    """``check`` warns of a distribution that also has files in ``adapter/``, with a line that keeps them apart."""
    info = tmp_path / "stranger-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "RECORD").write_text("adapter/__init__.py,,\nadapter/other.py,,\n")
    (tmp_path / "config.yaml").write_text(SERVER.format(auth="", more=""))
    done = mcp_adapter("check", "--config", tmp_path / "config.yaml", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 0, done.stderr
    assert "installation: stranger also installs files into adapter/" in done.stderr
    assert "pipx install " in done.stderr and "uv tool install " in done.stderr


class SignIn(BaseHTTPRequestHandler):
    """Says to everybody where people sign in."""

    def do_POST(self) -> None:
        self.send_response(401)
        metadata = "http://127.0.0.1:9/.well-known/oauth-protected-resource"
        self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{metadata}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def asking() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


@pytest.mark.parametrize(
    ("without", "said"), [("", "pass --oauth."), (WITHOUT, "pass --oauth, which needs the extra")]
)
def test_a_server_where_people_sign_in_says_what_to_add(without: str, said: str, tmp_path: Path) -> None:
    """``wrap`` names its flag, and where it is not installed the extra with the line that adds it."""
    (tmp_path / "sitecustomize.py").write_text(without)
    flags = ("--port", "0", "--root", tmp_path / "data")
    with asking() as url:
        done = mcp_adapter("wrap", url, *flags, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 1 and f"it needs people to sign in (OAuth): {said}" in done.stderr, done.stderr

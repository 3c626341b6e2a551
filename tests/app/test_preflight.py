"""A start that would fail ends at once with one sentence that says what to do."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adapter.app.preflight import obstacles, warnings
from adapter.settings.root import Settings
from adapter.state.lock_file import StateLock, StateTaken
from tests.ports import free_port

ADAPTER = Path(sys.executable).with_name("mcp-adapter")
CONSUMER = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
UNPRIVILEGED = 65534
"""The user nobody, who owns no folder."""

AS_NOBODY = f"""
import encodings.idna, os, pwd, sys  # nobody may be unable to read them later
from pathlib import Path
from adapter.app.preflight import obstacles
from adapter.settings.file.load import load
settings = load(Path(sys.argv[1]))
os.seteuid({UNPRIVILEGED})
for found in obstacles(settings):
    print(found.why)
"""


def configured(
    place: Path, *, port: int = 0, root: Path | None = None, files: bool = True, **more: Any
) -> Settings:
    server = {
        "id": "a",
        "upstream": {"url": "http://127.0.0.1:9/mcp"},
        "adapters": [CONSUMER] if files else [],
    }
    settings = {
        "core": {"port": port, **more.pop("core", {})},
        "storage": {"root": str(root or place / "data")},
        "servers": [server],
        **more,
    }
    (place / "config.yaml").write_text(json.dumps(settings))
    return Settings.model_validate(settings)


def serve(place: Path, wrapper: Sequence[str] = ()) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of ``serve``, and the lines of its log."""
    command = [*wrapper, str(ADAPTER), "serve", "--config", "config.yaml"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


def test_a_taken_port(tmp_path: Path) -> None:
    """The sentence has the address, and what to do; the status is 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configured(tmp_path, port=port)
        status, (line,) = serve(tmp_path)
    assert (status, line["event"], line["setting"]) == (1, "cannot listen", "core.port")
    assert line["why"].startswith("the port is taken: stop the program that listens on 127.0.0.1:")
    assert "choose another with --port" in line["why"]


def test_on_a_terminal_it_is_a_sentence(tmp_path: Path) -> None:
    """People read text, not JSON."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        configured(tmp_path, port=taken.getsockname()[1])
        ours, theirs = pty.openpty()
        command = [str(ADAPTER), "serve", "--config", "config.yaml"]
        done = subprocess.run(command, cwd=tmp_path, stdin=theirs, stderr=theirs, timeout=60)
        os.close(theirs)
        said = os.read(ours, 4096).decode()
        os.close(ours)
    assert done.returncode == 1
    assert said.startswith("mcp-adapter: cannot listen: the port is taken: stop the program")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine(tmp_path: Path, host: str) -> None:
    """The sentence names core.host."""
    (found,) = obstacles(configured(tmp_path, core={"host": host}))
    assert found.event == "cannot listen" and "set core.host to" in found.why


def test_one_address_of_several_is_taken(tmp_path: Path) -> None:
    """A name is only usable if nobody listens on any of its addresses."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (found,) = obstacles(configured(tmp_path, port=port, core={"host": "localhost"}))
    assert "the port is taken" in found.why
    assert list(obstacles(configured(tmp_path, port=port, core={"host": "localhost"}))) == []


def test_a_port_that_is_free_stays_free(tmp_path: Path) -> None:
    """To look changes nothing: neither the port is held nor is a file left."""
    port = free_port()
    settings = configured(tmp_path, port=port)
    for _ in range(2):
        assert list(obstacles(settings)) == []
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert [each for each in (tmp_path / "data").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("files", [True, False])
def test_a_root_that_is_a_file(tmp_path: Path, files: bool) -> None:
    """Each store names itself, and the setting to change."""
    (tmp_path / "data").touch()
    configured(tmp_path, files=files)
    status, (line,) = serve(tmp_path)
    event = "the store of files cannot be used" if files else "the state store cannot be used"
    assert (status, line["event"], line["setting"]) == (1, event, "storage.root")
    assert "is no directory" in line["why"] and "set another storage.root" in line["why"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_root_that_is_not_writable(tmp_path: Path) -> None:
    """The sentence has the directory and the user who needs it."""
    root = tmp_path / "data"
    root.mkdir(mode=0o755)
    configured(tmp_path, root=root)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "config.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    wanted = (
        f"{root} is not writable for the user nobody: let that user write there, or set another storage.root"
    )
    assert wanted in done.stdout


def test_a_state_file_of_its_own(tmp_path: Path) -> None:
    """Its directory counts then, and its setting is named."""
    (tmp_path / "state").touch()
    place = {"type": "disk", "disk": {"local_path": str(tmp_path / "state" / "adapter.sqlite3")}}
    (found,) = obstacles(configured(tmp_path, files=False, state_persistence=place))
    assert found.setting == "state_persistence.disk.local_path" and found.setting in found.why


def test_a_folder_that_everybody_may_write_into_is_told_of(tmp_path: Path) -> None:
    """Everybody could put another state file there. One that is missing is made for its owner alone."""
    folder = tmp_path / "shared"
    place = {"type": "disk", "disk": {"local_path": str(folder / "adapter.sqlite3")}}
    settings = configured(tmp_path, files=False, state_persistence=place)
    assert list(obstacles(settings)) == [] and folder.stat().st_mode & 0o777 == 0o700
    for mode, told in ((0o777, True), (0o1777, False), (0o775, False)):
        folder.chmod(mode)
        found = [each.setting for each in warnings(settings) if "all users may write" in each.event]
        assert found == ["state_persistence.disk.local_path"] * told
    assert folder.stat().st_mode & 0o777 == 0o775


def test_nothing_is_asked_of_a_disk_that_is_not_used(tmp_path: Path) -> None:
    """State in memory and no files: the root may be anything."""
    (tmp_path / "data").touch()
    settings = configured(tmp_path, files=False, state_persistence={"type": "memory"})
    assert [*obstacles(settings), *warnings(settings)] == []


def test_several_obstacles_are_told_together(tmp_path: Path) -> None:
    """Whoever repairs one should not meet the next one by starting again."""
    (tmp_path / "data").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = configured(tmp_path, port=taken.getsockname()[1])
        assert [found.setting for found in obstacles(settings)] == ["core.port", "storage.root"]


def test_a_root_in_use_is_told_at_once(tmp_path: Path) -> None:
    """The start still waits for the other adapter to end, as a restart may overlap; nobody waits in the dark."""
    settings = configured(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    assert list(warnings(settings)) == []
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,) = warnings(settings)
        assert found.event == "another adapter uses storage.root" and "set another storage.root" in found.why
        unlocked = configured(tmp_path, root=root)
        unlocked = unlocked.model_copy(
            update={"storage": unlocked.storage.model_copy(update={"lock_mode": "none"})}
        )
        assert list(warnings(unlocked)) == []
    assert list(warnings(settings)) == []


def test_root_that_replicas_share_is_nobodys_alone(tmp_path: Path) -> None:
    """Others with the same state are welcome; one with a state of its own is told of."""
    settings = configured(tmp_path)
    state = settings.state_persistence.model_copy(update={"type": "redis"})
    settings = settings.model_copy(update={"state_persistence": state})
    root = tmp_path / "data"
    root.mkdir()
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert list(warnings(settings)) == []
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [found.event for found in warnings(settings)] == ["another adapter uses storage.root"]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_locked_state_file_is_told_at_once(tmp_path: Path, kind: str) -> None:
    """The start waits for the other adapter to end; also where the file keeps memory."""
    state = {"type": kind, "disk": {"local_path": str(tmp_path / "own" / "state.sqlite3")}}
    settings = configured(tmp_path, files=False, state_persistence=state)
    assert settings.state_file is not None
    lock = StateLock(settings.state_file, 0)
    (found,) = warnings(settings)
    assert found.event == "another adapter uses the state file"
    assert found.setting == "state_persistence.disk.local_path" and "own/state.sqlite3" in found.why
    lock.close()
    assert list(warnings(settings)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_state_file_is_locked_while_an_adapter_serves(tmp_path: Path, workers: int) -> None:
    """By the process or by the supervisor of workers, until they have ended."""
    core = {"workers": workers, "host": "127.0.0.1", "shutdown_grace_seconds": 0}
    path = configured(tmp_path, port=free_port(), files=False, core=core).state_path
    command = [str(ADAPTER), "serve", "--config", "config.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        assert any('"event":"serving"' in line for line in serving.stderr)
        with pytest.raises(StateTaken):
            StateLock(path, 0)
        serving.terminate()
        serving.stderr.read()
    assert serving.returncode == 0
    StateLock(path, 0).close()


@pytest.mark.deep
@pytest.mark.parametrize(("workers", "refreshed"), [(1, False), (1, True), (2, False)])
def test_a_second_adapter_on_one_state_file_is_refused(tmp_path: Path, workers: int, refreshed: bool) -> None:
    """Without tools for files, too, and whether it has workers or not: one sentence, nothing is served or deleted."""
    state = {"type": "disk", "refresh_on_startup": refreshed}
    core = {"workers": workers, "host": "127.0.0.1"}
    settings = configured(tmp_path, files=False, state_persistence=state, core=core)
    lock = StateLock(settings.state_path, 0)
    settings.state_path.write_text("of the first")
    status, lines = serve(tmp_path)
    lock.close()
    assert status == 1
    assert [line["event"] for line in lines] == [
        "another adapter uses the state file",
        "the state store cannot be used",
    ]
    assert "which is for one alone: stop it" in lines[1]["why"]
    assert settings.state_path.read_text() == "of the first"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_in_the_directory_of_another_user(tmp_path: Path) -> None:
    """Files that root makes there would stop the next start of the service; root's own directory is no matter."""
    settings = configured(tmp_path, files=False)
    root = tmp_path / "data"
    root.mkdir()
    assert list(warnings(settings)) == []
    os.chown(root, UNPRIVILEGED, UNPRIVILEGED)
    (found,) = warnings(settings)
    assert found.event == "running as root" and "user nobody owns" in found.why

"""``python -m tests.e2e.earlier_states.make TREE NAME``: a state that the version in the working tree TREE wrote.

That version itself serves the clients and stops; its database is kept as SQL, with the files beside it and what its
clients know of them, in the folder NAME here.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.e2e.earlier_states.settings import OWN, TOOLS, settings
from tests.e2e.provision import ROOT
from tests.ports import free_port

HERE = Path(__file__).parent


def main(tree: Path, name: str) -> None:
    """Write the state of the version in ``tree``."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "tools.json").write_text(json.dumps(TOOLS))
        command = [sys.executable, "-m", "tests.e2e.earlier_server", "0", str(place / "tools.json")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as upstream:
            assert upstream.stdout is not None
            try:
                _keep(_used(tree, place, upstream.stdout.readline().strip()), place, HERE / name)
            finally:
                upstream.terminate()


def _used(tree: Path, place: Path, url: str) -> dict[str, Any]:
    """What the clients know who used that version, which has stopped again."""
    config = place / "config.json"
    config.write_text(json.dumps(settings(place, url, {"mode": "warn"})))
    adapter = [sys.executable, "-m", "adapter"]
    port = free_port()
    options = ["--config", str(config), "--port", str(port)]
    with subprocess.Popen([*adapter, "serve", *options], cwd=tree, env={**os.environ}) as running:
        try:
            base = f"http://127.0.0.1:{port}"
            _wait(f"{base}/readyz")
            own = _opened(base, OWN)
            _ask(base, OWN, own, "tools/list")
            known = {"sessions": [_session(base, "/mcp") for _ in range(3)], "own": own}
            time.sleep(2)
        finally:
            running.terminate()
    lock = subprocess.run(
        [*adapter, "pins", "export", "--output", "-", "--config", str(config)],
        cwd=tree,
        capture_output=True,
        check=True,
    )
    return {**known, "lock": lock.stdout.decode()}


def _session(base: str, mount: str) -> dict[str, Any]:
    """A session that has listed the tools, sent a file, has one drawn and a link that it has not used yet."""
    session = _opened(base, mount)
    _ask(base, mount, session, "tools/list")
    link, unused = (_link(base, mount, session) for _ in range(2))
    sent = _send(link, b"sent before")
    drawn = _call(base, mount, session, "draw", filename="picture.txt")
    return {"session": session, "upload": sent, "unused": unused.removeprefix(base), "drawn": drawn["result"]}


def _opened(base: str, mount: str) -> str:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    with _post(base + mount, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}) as answer:
        session = str(answer.headers["Mcp-Session-Id"])
    _post(base + mount, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session).close()
    return session


def _link(base: str, mount: str, session: str) -> str:
    answer = _call(base, mount, session, "up_get_upload_url")
    return str(answer["result"]["structuredContent"]["upload_url"])


def _send(link: str, content: bytes) -> str:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        + content
        + b"\r\n--b--\r\n"
    )
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    with urllib.request.urlopen(urllib.request.Request(link, body, form), timeout=20) as answer:
        return str(json.load(answer)["upload_handle"])


def _call(base: str, mount: str, session: str, tool: str, **arguments: str) -> Any:
    return _ask(base, mount, session, "tools/call", name=tool, arguments=arguments)


def _ask(base: str, mount: str, session: str, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with _post(base + mount, message, session) as answer:
        text = answer.read().decode()
    return json.loads(text[text.index("{") :])


def _post(url: str, message: Any, session: str | None = None) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session is not None:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    return urllib.request.urlopen(request, timeout=20)


def _wait(url: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{url} does not answer")


def _keep(known: dict[str, Any], place: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    (kept / "tools.lock").write_text(known.pop("lock"))
    (kept / "known.json").write_text(json.dumps(known, indent=1) + "\n")
    data = place / "data"
    with sqlite3.connect(data / "state" / "adapter.sqlite3") as database:
        pragmas = [
            f"PRAGMA {each}={database.execute(f'PRAGMA {each}').fetchone()[0]};"
            for each in ("application_id", "user_version")
        ]
        (kept / "state.sql").write_text("\n".join([*database.iterdump(), *pragmas]) + "\n")
    shutil.rmtree(data / "state")
    shutil.copytree(data, kept / "data")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

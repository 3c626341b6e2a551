"""Several processes on one port: what clients meet while workers are killed, replaced and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from adapter.settings.root import Settings
from adapter.state.lock_file import StateLock, StateTaken
from tests.e2e.processes import adapter, start
from tests.e2e.supervised import PATIENCE, Load, Supervised, supervised
from tests.edge.raw import RawClient, error_of, modern_body, modern_fields, read_body, result
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.e2e


async def waiting_call(one: Supervised) -> RawClient:
    """A client whose call has reached the upstream, which answers it when the test says so."""
    client = await RawClient(one.port).__aenter__()
    await client.send("POST", modern_body("wait", 7), **modern_fields("wait"))
    async with asyncio.timeout(PATIENCE):
        await one.script.waiting.wait()
    return client


async def answer_of(client: RawClient) -> tuple[int, bytes]:
    """Status and body of the call that is under way."""
    async with asyncio.timeout(PATIENCE):
        head = await client.head()
        return head.status, await read_body(client.reader, head)


def is_alive(pid: int) -> bool:
    """True for a process that has not ended; one that has, and that nobody has reaped, is a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def refuses(one: Supervised) -> bool:
    """True if nobody listens on the port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", one.port)
    except OSError:
        return True
    writer.transport.abort()
    return False


async def until_refused(one: Supervised) -> None:
    await until(lambda: refuses(one), PATIENCE)


async def test_every_worker_serves_and_says_so(tmp_path: Path) -> None:
    """Connections are spread over all workers, each line of the log names its own, and the supervisor is none."""
    async with supervised(tmp_path, workers=3, access_log=True) as one:
        assert len(one.workers) == 3 and one.pid not in one.workers
        clients = [await RawClient(one.port).__aenter__() for _ in range(12)]
        for number, client in enumerate(clients):
            assert (await client.modern_call(number=number))[1] == result(number)
        await one.until(lambda: len(one.logged("exchange")) == 12)
        said = {(line["worker"], line["pid"]) for line in one.logged("exchange")}
        assert {pid for _, pid in said} == set(one.workers)
        assert {number for number, _ in said} == {1, 2, 3}
        for client in clients:
            client.close()


async def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Calls on its connections break off; nobody else notices, and no connection is refused."""
    async with supervised(tmp_path) as one:
        load = Load(one.port)
        async with load.running():
            await load.more(50)
            victim, other = one.workers
            os.kill(victim, signal.SIGKILL)
            await one.serving(3)
            await load.more(50)
        assert set(load.outcomes) <= {"ok", "broken"}, load.outcomes
        assert load.outcomes["broken"] <= load.clients
        assert other in one.workers and victim not in one.workers and len(one.workers) == 2
        (line,) = one.logged("a worker has ended and is started again")
        assert (line["process"], line["status"]) == (victim, -signal.SIGKILL)


async def test_the_port_is_there_while_no_worker_is(tmp_path: Path) -> None:
    """Who connects then waits for the next worker."""
    async with supervised(tmp_path) as one:
        for pid in one.workers:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE), RawClient(one.port) as client:
            assert (await client.modern_call(number=7))[1] == result(7)


async def test_workers_that_served_once_are_started_until_they_can_again(tmp_path: Path) -> None:
    """Their state cannot be opened for a while, so starts fail more often than a first start may."""
    async with supervised(tmp_path) as one:
        (state,) = {path.parent for path in tmp_path.rglob("adapter.sqlite3")}
        away = state.rename(tmp_path / "away")
        state.mkdir()
        with closing(sqlite3.connect(state / "adapter.sqlite3")) as foreign, foreign:
            foreign.execute("CREATE TABLE theirs (id)")
        for pid in one.workers:
            os.kill(pid, signal.SIGKILL)
        await one.until(lambda: len(one.logged("a worker has ended and is started again")) > 6)
        shutil.rmtree(state)
        away.rename(state)
        await one.serving(4)
        async with asyncio.timeout(PATIENCE), RawClient(one.port) as client:
            assert (await client.modern_call(number=7))[1] == result(7)


async def test_workers_are_replaced_without_a_loss(tmp_path: Path) -> None:
    """No connection is refused under load, no call is lost, and a long call ends on the old worker."""
    async with supervised(tmp_path, shutdown_grace_seconds=60) as one:
        before = one.workers
        client = await waiting_call(one)
        load = Load(one.port)
        async with load.running():
            await load.more(50)
            one.replace()
            await one.serving(3)
            await load.more(50)
            one.script.go.set()
            assert await answer_of(client) == (200, result(7))
            await one.until(lambda: bool(one.logged("all workers have been replaced")))
            await load.more(50)
        assert set(load.outcomes) == {"ok"}, load.outcomes
        assert len(one.workers) == 2 and not set(before) & set(one.workers)
        client.close()


def handed_over(one: Supervised, times: int) -> bool:
    return len(one.logged("all workers serve by the changed settings")) == times


async def test_servers_change_in_the_workers_that_serve(tmp_path: Path) -> None:
    """Under load no worker ends and no call is lost; a long call ends as it began, and the log says what changed."""
    async with supervised(tmp_path, shutdown_grace_seconds=60) as one:
        before, settings = one.workers, one.settings
        kept = dict(settings["servers"][0])
        settings["servers"].append({**kept, "id": "second", "mount_path": "/second"})
        client = await waiting_call(one)
        load = Load(one.port)
        async with load.running():
            await load.more(50)
            for number in range(1, 4):
                settings["servers"][1]["tool_defaults"] = {"tool_call_timeout_seconds": number}
                one.reread(settings)
                await one.until(partial(handed_over, one, number))
                await load.more(50)
            one.script.go.set()
            assert await answer_of(client) == (200, result(7))
        assert set(load.outcomes) == {"ok"}, load.outcomes
        assert one.workers == before
        assert {line["worker"] for line in one.logged("the settings are in force")} == {1, 2}
        client.close()
        async with RawClient(one.port) as other:
            head, _ = await other.request("POST", modern_body(), "/second", **modern_fields())
            assert head.status == 200
        # A worker that takes the place of another one serves by them too.
        os.kill(before[0], signal.SIGKILL)
        await one.serving(3)
        os.kill(before[1], signal.SIGKILL)
        await one.serving(4)
        async with RawClient(one.port) as other:
            head, _ = await other.request("POST", modern_body(), "/second", **modern_fields())
            assert head.status == 200


async def test_a_changed_file_is_noticed_by_workers(tmp_path: Path) -> None:
    """Nobody sends a signal; what a process cannot change has the workers replaced, and the log names the key."""
    async with supervised(tmp_path, watch=True) as one:
        settings = one.settings
        settings["core"]["max_connections"] = 1000
        one.write(settings)
        await one.until(lambda: bool(one.logged("all workers have been replaced")))
        (line,) = one.logged("workers are replaced one by one")
        assert line["settings"] == ["core.max_connections"]
        one.write("servers: [")
        event = "the changed settings cannot be used, the old ones stay in force"
        await one.until(lambda: len({line["worker"] for line in one.logged(event)}) == 2)


async def test_new_settings_are_taken(tmp_path: Path) -> None:
    """Number of workers and everything else: what the file says now. A state file that none uses is locked by none."""
    async with supervised(tmp_path) as one:
        settings = one.settings
        state = Settings.model_validate(settings).state_path
        settings["state_persistence"] = {"disk": {"local_path": str(tmp_path / "other.sqlite3")}}
        settings["servers"][0]["mount_path"] = "/other"
        settings["core"] |= {"workers": 3}
        one.reread(settings)
        await one.until(lambda: bool(one.logged("all workers have been replaced")))
        assert len(one.workers) == 3
        (await asyncio.to_thread(StateLock, state, PATIENCE)).close()
        with pytest.raises(StateTaken):
            StateLock(tmp_path / "other.sqlite3", 0)
        async with RawClient(one.port) as client:
            head, _ = await client.request("POST", modern_body(), "/other", **modern_fields())
            assert head.status == 200
        settings["core"] |= {"workers": 1}
        one.reread(settings)
        await one.until(lambda: len(one.logged("all workers have been replaced")) == 2)
        await one.until(lambda: len(one.workers) == 1)


async def test_settings_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    """One line says what is wrong with them, and the workers go on."""
    async with supervised(tmp_path) as one:
        before = one.workers
        one.reread(json.dumps(one.settings).replace('"mount_path"', '"mount_pth"'))
        event = "the settings cannot be used, workers go on with the old ones"
        await one.until(lambda: bool(one.logged(event)))
        (line,) = one.logged(event)
        assert "mount_pth" in line["why"]
        assert one.workers == before
        async with RawClient(one.port) as client:
            assert (await client.modern_call(number=7))[1] == result(7)


@pytest.mark.parametrize("whole_group", [False, True])
async def test_a_stop_waits_for_calls(tmp_path: Path, whole_group: bool) -> None:
    """SIGTERM to the supervisor, or to everybody as systemd does: the port closes, the call ends, the status is 0."""
    async with supervised(tmp_path, shutdown_grace_seconds=60) as one:
        client = await waiting_call(one)
        workers = one.workers
        (os.killpg if whole_group else os.kill)(one.pid, signal.SIGTERM)
        await until_refused(one)
        one.script.go.set()
        assert await answer_of(client) == (200, result(7))
        assert await one.ended() == 0
        assert not any(map(is_alive, workers))
        client.close()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_signal_cuts_calls(tmp_path: Path, workers: int) -> None:
    """The grace of a minute is over; the client is told under its id, and the stop is a good one."""
    async with supervised(tmp_path, workers=workers, shutdown_grace_seconds=60) as one:
        client = await waiting_call(one)
        os.kill(one.pid, signal.SIGTERM)
        await until_refused(one)
        os.kill(one.pid, signal.SIGTERM)
        status, body = await answer_of(client)
        assert (status, error_of(body)["code"], error_of(body)["id"]) == (503, -32016, 7)
        assert await one.ended() == 0
        client.close()


async def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    """After kill -9 of it the port is free at once, and its workers have gone when their calls have ended."""
    async with supervised(tmp_path, shutdown_grace_seconds=60) as one:
        client = await waiting_call(one)
        workers = one.workers
        os.kill(one.pid, signal.SIGKILL)
        await until_refused(one)
        one.script.go.set()
        assert await answer_of(client) == (200, result(7))
        await one.until(lambda: not any(map(is_alive, workers)))
        client.close()


async def test_a_worker_that_is_asked_to_stop_is_replaced(tmp_path: Path) -> None:
    """SIGTERM to one of them is a stop without loss of that one."""
    async with supervised(tmp_path) as one:
        load = Load(one.port)
        async with load.running():
            await load.more(50)
            victim = one.workers[0]
            os.kill(victim, signal.SIGTERM)
            await one.serving(3)
            await one.until(lambda: victim not in one.workers)
            await load.more(50)
        assert set(load.outcomes) == {"ok"}, load.outcomes
        assert len(one.workers) == 2


async def test_a_start_that_always_fails_is_given_up(tmp_path: Path) -> None:
    """The workers say why; then the process ends with status 1, as one without workers does."""
    state = tmp_path / "foreign.sqlite3"
    with closing(sqlite3.connect(state)) as foreign, foreign:
        foreign.execute("CREATE TABLE theirs (id)")
    settings = {
        "core": {"workers": 2, "port": free_port()},
        "storage": {"root": str(tmp_path / "data")},
        "state_persistence": {"disk": {"local_path": str(state)}},
        "servers": [{"id": "up", "mount_path": "/mcp", "upstream": {"url": "http://127.0.0.1:9/mcp"}}],
    }
    config, log = tmp_path / "adapter.json", tmp_path / "adapter.log"
    config.write_text(json.dumps(settings))
    running = await start([sys.executable, "-m", "adapter", "serve", "--config", config], log)
    async with asyncio.timeout(PATIENCE):
        await running.process.communicate()
    assert running.process.returncode == 1
    assert log.read_text().count("a database of another program") == 3
    assert "no worker can serve; giving up" in log.read_text()


async def test_one_worker_has_no_supervisor(tmp_path: Path) -> None:
    """The default: the process that was started is the one that serves, and has no child."""
    async with adapter(
        tmp_path, "http://127.0.0.1:9/mcp", core={"upstream_ping": {"enabled": False}}
    ) as front:
        assert front.running is not None
        pid = front.running.process.pid
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""


async def test_a_session_is_served_by_every_worker(tmp_path: Path) -> None:
    """Opened on one connection, used on others, and ended on one: then it is unknown everywhere within a moment."""
    async with supervised(tmp_path, workers=2, access_log=True) as one:
        async with RawClient(one.port) as opener:
            await opener.initialize()
            session = opener.session
        clients: list[RawClient] = []
        # The kernel gives a connection to a worker as it likes.
        while {line["worker"] for line in one.logged("exchange")} != {1, 2} or len(clients) < 8:
            clients.append(await RawClient(one.port).__aenter__())
            clients[-1].session = session
            head, body = await clients[-1].call(number=len(clients))
            assert (head.status, body) == (200, result(len(clients)))
            assert len(clients) < 1000
        head, _ = await clients[0].request("DELETE")
        assert head.status == 200
        async with asyncio.timeout(10):
            for client in clients:
                while (await client.call())[0].status != 404:
                    await asyncio.sleep(0.01)
        for client in clients:
            client.close()
        assert one.upstream.opened == 1

"""Two people on one server with three replicas behind nginx: neither meets anything of the other's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.clients.browser import Browser
from tests.e2e.files_server import drawing
from tests.e2e.filing import (
    Answer,
    Json,
    PythonHost,
    Unreadable,
    artifact,
    content_of,
    curl,
    offered,
    post,
    said,
    sha256,
    uploaded,
)
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.front import REPLICAS, core_of, three_replicas
from tests.e2e.oauth.protection import link_of, person, protected_server
from tests.e2e.processes import Server
from tests.e2e.replicas import replicated
from tests.ports import free_port

pytestmark = pytest.mark.e2e

FILES = "tests.e2e.files_server"
ROUNDS = 6
"""Repetitions of what any replica may answer: nginx takes them in turn."""


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_neither_meets_the_files_of_the_other(
    mode: str, oauth_programs: None, replicas_programs: None, tmp_path: Path
) -> None:
    """Uploads, artifacts, lists and downloads are of one person on every replica, and nobody else's on any."""
    notes = {name: tmp_path / f"{name}.txt" for name in ("ada", "bob")}
    for name, file in notes.items():
        file.write_text(f"notes of {name}")
    async with (
        authorization_server(tmp_path) as issuer,
        Server(FILES, tmp_path) as upstream,
        three_replicas(tmp_path, issuer, upstream.url) as front,
        person("ada", front, mode) as ada,
        person("bob", front, mode) as bob,
    ):
        people = {"ada": ada, "bob": bob}
        handles, drawings = {}, {}
        for number, (name, host) in enumerate(people.items()):
            (upload,) = await uploaded(host, notes[name])
            handles[name] = upload["upload_handle"]
            drawings[name] = artifact(await host.call("draw", seed=number, size=5000, filename=f"{name}.bin"))
        for _ in range(ROUNDS):
            for number, (name, other) in enumerate((("ada", "bob"), ("bob", "ada"))):
                await meets_own(people[name], handles[name], notes[name], drawings[name], number)
                await meets_nothing(people[name], handles[other], drawings[other])
        for name, other in (("ada", "bob"), ("bob", "ada")):
            unsigned = drawings[name]["download_url"].partition("?")[0]
            for _ in range(REPLICAS):
                theirs = await issuer.token(other, front.url)
                assert (await curl("-H", f"Authorization: Bearer {theirs}", unsigned)).status == 404
            own = await issuer.token(name, front.url)
            number = list(people).index(name)
            assert await curl("-H", f"Authorization: Bearer {own}", unsigned) == Answer(
                200, drawing(number, 5000)
            )


async def meets_own(host: PythonHost, handle: str, file: Path, told: Json, number: int) -> None:
    content = file.read_bytes()
    digest = await host.call("digest", path=handle)
    assert said(digest) == f"{sha256(content)} {len(content)} {file.name}"
    assert told["artifact_uri"] in [each["uri"] for each in await host.resources()]
    assert content_of(await host.read(told["artifact_uri"])) == drawing(number, 5000)


async def meets_nothing(host: PythonHost, handle: str, told: Json) -> None:
    for uri in (handle, told["artifact_uri"]):
        assert (await host.call("digest", path=uri))["isError"]
    assert told["artifact_uri"] not in [each["uri"] for each in await host.resources()]
    with pytest.raises(Unreadable, match="Resource not found"):
        await host.read(told["artifact_uri"])


async def test_an_upload_url_is_good_for_one_and_by_one(
    oauth_programs: None, replicas_programs: None, tmp_path: Path
) -> None:
    """The file belongs to whom the URL was given, whoever else sends their token with it, and once on all replicas."""
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    async with (
        authorization_server(tmp_path) as issuer,
        Server(FILES, tmp_path) as upstream,
        three_replicas(tmp_path, issuer, upstream.url) as front,
        person("ada", front, "legacy") as ada,
        person("bob", front, "legacy") as bob,
    ):
        url = await offered(ada)
        theirs = await issuer.token("bob", front.url)
        # The URL itself says whose file it will be, so it needs no token, and another one's changes nothing.
        answer = await curl("-H", f"Authorization: Bearer {theirs}", "-F", f"file=@{file}", url)
        handle = answer.json["uploads"][0]["upload_handle"]
        assert (await bob.call("digest", path=handle))["isError"]
        assert said(await ada.call("digest", path=handle))
        for _ in range(REPLICAS):
            assert (await post(url, file)).status in (401, 403, 404, 409, 410)


async def test_grants_are_their_persons_on_every_replica(
    oauth_programs: None, replicas_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """A link leads to the console's sign-in, which any replica finishes, and from there to a grant for that person; who
    signs in as somebody else is refused. Each replica then calls with the person's own grant."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    client = {
        "client_id": "console",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [f"{base}/explorer/-/signed-in"],
        "grant_types": ["authorization_code"],
    }
    async with (
        authorization_server(tmp_path, clients=[client]) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        replicated(
            tmp_path,
            upstream,
            REPLICAS,
            port=port,
            core={
                **core_of(base, issuer),
                "trusted_proxies": ["127.0.0.1"],
                "secret": "secret-of-all-replicas" * 2,
            },
            server={"upstream": {"url": upstream, "auth": {"type": "authorization_code"}}},
            console={"enabled": True, "oauth": {"client_id": "console"}},
        ) as front,
        person("ada", front, "2026-07-28") as ada,
        person("bob", front, "2026-07-28") as bob,
    ):
        people = {"ada": ada, "bob": bob}
        links = {name: await link_of(host) for name, host in people.items()}
        thief = await asyncio.to_thread(Browser("bob").visit, links["ada"])
        assert "You are not the one" in thief.text, thief
        for name, host in people.items():
            page = await asyncio.to_thread(Browser(name).visit, links[name])
            assert "Access given" in page.text, page
            for _ in range(ROUNDS):
                assert said(await host.call("whoami")) == name
        for _ in range(ROUNDS):
            seen = await asyncio.gather(ada.call("whoami"), bob.call("whoami"))
            assert [said(each) for each in seen] == ["ada", "bob"]

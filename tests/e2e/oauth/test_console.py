"""People sign in to the console with their browser, in the system's chromium and by requests of an attacker's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.clients.browser import Browser, Page
from tests.e2e.console_house import played
from tests.e2e.filing import curl
from tests.e2e.oauth.authorization_server import AuthorizationServer, authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.processes import Adapter, Server
from tests.ports import free_port

pytestmark = pytest.mark.e2e

SCENES = Path(__file__).parent / "console.mjs"
SCENE_TIMEOUT = 60.0
"""Seconds a scene may take, with the start of its browser."""

ECHO = "tests.e2e.upstream_server"
CLIENT = "console"


@asynccontextmanager
async def console(place: Path, **more: Any) -> AsyncIterator[tuple[Adapter, AuthorizationServer]]:
    """The adapter with a console to which people sign in; operators are in the group of that name."""
    port = free_port()
    client = {
        "client_id": CLIENT,
        "token_endpoint_auth_method": "none",
        "redirect_uris": [f"http://127.0.0.1:{port}/explorer/-/signed-in"],
        "grant_types": ["authorization_code"],
    }
    oauth = {
        "client_id": CLIENT,
        "operator_claims": {"groups": ["operators"]},
        "viewer_claims": {"groups": ["staff"]},
    }
    async with (
        authorization_server(place, clients=[client]) as issuer,
        Server(ECHO, place) as upstream,
        protected_adapter(
            place,
            upstream.url,
            issuer,
            port=port,
            server={"adapters": []},
            console={"enabled": True, "allow_execute": True, "oauth": {**oauth, **more}},
        ) as front,
    ):
        yield front, issuer


async def scene_of(
    node: Path, chromium: Path, place: Path, scene: str, url: str, *words: str
) -> dict[str, Any]:
    """What a scene saw."""
    return await played(node, chromium, place, SCENES, scene, url, *words, within=SCENE_TIMEOUT)


async def test_an_operator_signs_in_works_and_signs_out(
    node: Path, chromium: Path, oauth_programs: None, tmp_path: Path
) -> None:
    """The page leads to the issuer and back to where its reader was; a tool is called as that person; a cookie that no
    script can read keeps them signed in until they sign out."""
    async with console(tmp_path) as (front, issuer):
        seen = await scene_of(node, chromium, tmp_path, "work", f"{front.base}/explorer/", "ada")
        assert seen["before"] == {"who": "", "field": False}, "the first look asks for a token"
        assert seen["who"].startswith(f"ada@{issuer.issuer}"[:20]) and "operator" in seen["who"]
        assert seen["back"].endswith("#/server/upstream/tools/echo")
        assert "you said hello" in seen["result"]
        assert seen["readable"] == "", "a script can read the cookie"
        assert [(each["httpOnly"], each["sameSite"]) for each in seen["cookies"]] == [(True, "Lax")] * 2
        assert seen["reloaded"] == seen["who"]
        assert seen["after"] == ""
        assert seen["left"] == []


async def test_who_may_see_nothing_reads_why_and_signs_out(
    node: Path, chromium: Path, oauth_programs: None, tmp_path: Path
) -> None:
    """The page names what would be enough, on a phone too; another person can sign in afterwards."""
    async with console(tmp_path, viewer_claims={"scope": ["mcp-console"], "groups": ["staff"]}) as (front, _):
        seen = await scene_of(node, chromium, tmp_path, "refused", f"{front.base}/explorer/", "eve")
        for right in ("the scope mcp-console", "staff in groups", "operators in groups"):
            assert right in seen["said"], seen
        assert seen["wide"] == 390


async def test_roles_follow_the_claims(
    node: Path, chromium: Path, oauth_programs: None, tmp_path: Path
) -> None:
    """A viewer reads, and accepts nothing; who is neither sees nothing, and why."""
    async with console(tmp_path) as (front, _):
        for person, me, servers, accept in (
            ("ada", 200, 200, 400),
            ("bob", 200, 200, 403),
            ("eve", 403, 403, 403),
        ):
            seen = await scene_of(node, chromium, tmp_path, "roles", f"{front.base}/explorer/", person)
            assert (seen["me"], seen["servers"], seen["accept"]) == (me, servers, accept), (person, seen)


# --- attacks ------------------------------------------------------------------------------------------------------


async def began(browser: Browser, front: Adapter) -> str:
    """The authorization URL to which a browser is sent that begins to sign in."""
    place = f"{front.base}/explorer/-/sign-in?to="
    page = await asyncio.to_thread(browser.page, place)
    assert page.location is not None, page
    return page.location


async def answered(browser: Browser, url: str) -> str:
    """The URL of the adapter to which the issuer sends a browser that has signed in there."""
    return await asyncio.to_thread(browser.approve, url)


async def opened(browser: Browser, url: str) -> Page:
    return await asyncio.to_thread(browser.page, url)


def session(browser: Browser) -> str | None:
    """The cookie that signs in, if the browser has it."""
    return next((each.value for each in browser.cookies if each.name == "mcp_adapter_session"), None)


async def test_no_answer_counts_in_another_browser_or_twice(oauth_programs: None, tmp_path: Path) -> None:
    """A link with an attacker's code signs nobody in as the attacker, nor does a victim's code the attacker; an answer
    counts once, and only from the issuer that was asked."""
    async with console(tmp_path) as (front, issuer):
        victim, attacker = Browser("ada"), Browser("bob")
        theirs = await answered(attacker, await began(attacker, front))
        assert (await opened(victim, theirs)).status == 400
        await began(victim, front)
        assert (await opened(victim, theirs)).status == 400, "the state of another browser"
        assert session(victim) is None

        mine = await answered(victim, await began(victim, front))
        assert (await opened(attacker, mine)).status == 400 and session(attacker) is None
        for change in (
            lambda url: url.replace(quote(issuer.issuer, safe=""), quote("https://evil.example", safe="")),
            lambda url: url.partition("&iss=")[0],
            lambda url: url.replace("code=", "code=x"),
            lambda url: url.replace("state=", "state=x"),
            lambda url: f"{url}&error=" + "x" * 5000,
            lambda url: url.partition("?")[0],
        ):
            browser = Browser("ada")
            target = change(await answered(browser, await began(browser, front)))
            page = await opened(browser, target)
            assert page.status == 400 and session(browser) is None, (target, page)
            assert "evil" not in page.text

        done = await opened(victim, mine)
        assert (done.status, done.location) == (302, f"{front.base}/explorer/")
        first = session(victim)
        assert first is not None
        again = await opened(victim, mine)
        assert again.status == 400 and session(victim) == first


async def test_a_cookie_acts_for_our_page_alone(oauth_programs: None, tmp_path: Path) -> None:
    """Requests that any page can cause do nothing with it; nor does it open a mount, or count as a token."""
    async with console(tmp_path) as (front, _):
        browser = Browser("ada")
        await opened(browser, await answered(browser, await began(browser, front)))
        cookie = f"Cookie: mcp_adapter_session={session(browser)}"
        ours = ("-H", "X-Adapter-Session: 0123456789abcdef")
        me, accept = f"{front.base}/explorer/-/me", f"{front.base}/explorer/-/pins/upstream/accept"
        call, out = f"{front.base}/explorer/upstream/tools/echo/call", f"{front.base}/explorer/-/sign-out"
        json_body = ("-H", "Content-Type: application/json", "-d", "{}")
        assert (await curl("-H", cookie, *ours, me)).status == 200
        for fields in (
            (),
            (*ours, "-H", "Sec-Fetch-Site: cross-site"),
            (*ours, "-H", "Sec-Fetch-Site: same-site"),
            (*ours, "-H", "Origin: https://evil.example"),
            (*ours, "-H", "Origin: null"),
        ):
            assert (await curl("-H", cookie, *fields, me)).status in (401, 403), fields
            for url in (accept, call, out):
                refused = await curl("-H", cookie, *fields, *json_body, url)
                assert refused.status in (401, 403), (fields, url, refused)
        assert (await curl("-H", cookie, *ours, "-H", "Authorization: Bearer wrong", me)).status == 401
        assert (await curl("-H", cookie, *ours, *json_body, accept)).status == 400
        assert (await curl("-H", cookie, *ours, *json_body, front.url)).status == 401
        assert (await curl("-H", f"Authorization: Bearer {session(browser)}", me)).status == 401
        doubled = f"Cookie: mcp_adapter_session={session(browser)}; mcp_adapter_session={session(browser)}"
        assert (await curl("-H", doubled, *ours, me)).status == 401

"""The console in the system's chromium, served by the running adapter with real servers behind it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.asking_upstream import LINK
from tests.e2e.console_house import (
    DRIFTING,
    OPERATOR,
    READ,
    REDEFINED,
    SECRETS,
    TOKENS,
    House,
    Theatre,
    house,
    theatre,
)
from tests.e2e.filing import MIB, python_host, said, sha256

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NOTHING: dict[str, list[str]] = {"dialogs": [], "errors": [], "elsewhere": [], "violations": []}
"""What a browser reports of a page that behaves: no dialog, no error, no request to another host, no breach of the
policy."""

UNICODE = "Зимний сон – 冬の夢 (1).txt"


@dataclass
class Stage:
    """A running adapter, and a browser in front of it."""

    house: House
    theatre: Theatre

    async def play(self, scene: str, reader: str | None, **words: Any) -> dict[str, Any]:
        """What the scene saw, played with the token of ``reader``. The browser had nothing to report."""
        token = TOKENS[reader] if reader else None
        seen = await self.theatre.play(scene, self.house.url, token=token, **words)
        assert {each: seen[each] for each in NOTHING} == NOTHING
        return seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(
    node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Theatre]:
    async with theatre(node, chromium, tmp_path_factory.mktemp("theatre")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(browser: Theatre, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """With tokens, which scenes enter where the page asks for one."""
    async with house(tmp_path_factory.mktemp("house"), auth=True) as opened:
        yield Stage(opened, browser)


async def test_a_tool_is_found_and_run(stage: Stage) -> None:
    """By words of its name, among those of all servers; back, forward and a reload keep the place."""
    seen = await stage.play("find", "vic")
    assert seen["rows"] == 3
    assert "structuredContent" in seen["raw"]


async def test_a_form_is_there_after_signing_in(stage: Stage) -> None:
    """A call without a token asks for one, and what was filled in stays; files are attached only where they are taken;
    the overview counts all tools, also of servers that nobody has asked yet."""
    seen = await stage.play("late", "vic")
    assert (seen["kept"], seen["clips"]) == ("C-002", 0)


async def test_a_file_goes_to_a_tool(stage: Stage) -> None:
    """Its bar moves, its handle is the argument, its bytes and its name arrive, and it counts in the quota."""
    seen = await stage.play("upload", "vic", name=UNICODE, size=8 * MIB)
    assert len(seen["bars"]) > 2 and seen["bars"] == sorted(seen["bars"])
    assert seen["handle"].startswith("upload://")
    assert f"{seen['digest']} {8 * MIB} {UNICODE}" in seen["said"]
    assert seen["quota"] == "25"


async def test_progress_is_shown_while_a_call_runs(stage: Stage) -> None:
    """As the server reports it, before the result is there."""
    seen = await stage.play("progress", "vic")
    assert len(seen["told"]) > 2
    assert all(f"step {each['value']} of {each['max']}" in each["said"] for each in seen["told"])
    assert "Counted to 8." in seen["said"]


async def test_a_cancelled_call_ends_at_its_server(stage: Stage) -> None:
    """The server's own code is cancelled; another call can be made."""
    assert (await stage.play("cancel", "vic"))["again"]
    assert [await stage.house.demo.line(5) for _ in range(2)] == ["begun", "cancelled"]


async def test_an_image_is_previewed_and_downloaded(stage: Stage) -> None:
    """Out of the result and out of the list of files, byte by byte what the tool wrote; another tool takes it too."""
    name = "Aufträge 2025.png"
    seen = await stage.play("artifact", "vic", name=name)
    content = base64.b64encode(stage.house.kept(name)).decode()
    assert seen["width"] > 100
    assert seen["result"] == seen["files"] == [name, content]
    assert sha256(stage.house.kept(name)) in seen["digest"]


async def test_changed_tools_wait_for_an_operator(stage: Stage) -> None:
    """Both definitions stand side by side. A viewer and an agent are refused; then an operator's word counts."""
    await accepted(stage.house)
    stage.house.offer(REDEFINED)
    mount = f"{stage.house.front.base}/mcp/{DRIFTING}"
    fields = {"Authorization": f"Bearer {TOKENS['anna']}"}
    async with python_host(mount, headers=fields) as agent:
        with pytest.raises(Exception, match="changed"):
            await agent.tools()

    seen = await stage.play("drift", "vic", accept=False)
    assert not seen["offered"] and "vic" in seen["why"]
    assert READ["description"] in seen["before"] and "id_ed25519" not in seen["before"]
    assert "id_ed25519" in seen["now"]
    assert [await accepting(stage.house, name) for name in ("vic", "anna")] == [403, 403]

    assert (await stage.play("drift", OPERATOR, accept=True))["offered"]
    async with python_host(mount, headers=fields) as agent:
        assert await agent.tools() == ["read"]
        assert said(await agent.call("read", path="a")) == "read ran"


async def accepted(house: House) -> None:
    """Somebody lists the tools of the drifting server, and an operator accepts them."""
    await listing(house, OPERATOR)
    assert await accepting(house, OPERATOR) == 200


async def listing(house: House, name: str) -> None:
    """Lists the tools of the drifting server with the token of ``name``."""
    fields = {"Authorization": f"Bearer {TOKENS[name]}"}
    async with aiohttp.request("GET", f"{house.url}{DRIFTING}/tools", headers=fields) as answer:
        assert answer.status == 200


async def accepting(house: House, name: str) -> int:
    """The status of an acceptance with the token of ``name``, of what is offered now."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKENS[name]}"}) as http:
        async with http.get(f"{house.url}-/pins/{DRIFTING}") as answer:
            digest = (await answer.json())["digest"]
        async with http.post(f"{house.url}-/pins/{DRIFTING}/accept", json={"digest": digest}) as answer:
            return answer.status


async def test_a_server_asks_by_a_form(stage: Stage) -> None:
    """Every kind of field of MCP 2025-11-25, with its title, default and fault; declined and cancelled too, and asked
    on the stream of the session as on that of the call. What the server says stays text."""
    seen = await stage.play("form", "vic")
    assert seen["focused"] == "The tool form asks you"
    assert stage.house.asking.capabilities[-1] == {"elicitation": {"form": {}, "url": {}}}
    assert len(seen["labels"]) == 12 and {"Your name", "E-mail", "view", "colours"} <= set(seen["labels"])
    assert seen["faults"] == [
        "This needs at least 2 characters.",
        "The least is 18.",
        "Fill this in.",
        "This is not an e-mail address.",
        "Choose at most 2.",
    ]
    assert seen["first"] == "Your name"
    content = seen["accepted"]["content"]
    assert seen["accepted"]["action"] == "accept" and content.pop("meet").startswith("2026-09-01T08:30:15")
    assert content == {
        "name": "Ann",
        "mail": "ann@example.com",
        "site": "https://ann.example/",
        "born": "2000-02-29",
        "age": 42,
        "share": 0.5,
        "quiet": True,
        "room": "l",
        "view": "sea",
        "extras": ["bike"],
        "colours": ["r", "g"],
    }
    assert (seen["declined"], seen["cancelled"]) == ({"action": "decline"}, {"action": "cancel"})
    assert seen["aside"] == {"action": "decline"}
    assert (seen["harmed"], seen["markup"]) == (None, 0)


async def test_a_server_asks_for_a_page_to_be_opened(stage: Stage) -> None:
    """The whole address and its host are shown, and opened by a click only, in a tab that does not know this one. A
    call that needs one first is made again by a button."""
    seen = await stage.play("links", "vic")
    assert LINK in seen["shown"] and "sign.example" in seen["shown"]
    assert seen["marks"] == {"target": "_blank", "rel": "noopener noreferrer", "href": LINK}
    assert (seen["before"], seen["opener"], seen["accepted"]) == (1, None, {"action": "accept"})
    assert LINK in seen["blocked"] and "Run again" in seen["blocked"]
    stage.house.asking.opened = True
    assert (await stage.play("unblocked", "vic"))["said"] == "ran"


async def test_what_the_console_cannot_answer_is_told(stage: Stage) -> None:
    """A language model and folders: the server hears that there are none, and the reader who asked for them."""
    seen = await stage.play("refused", "vic")
    assert [each["code"] for each in seen["answers"]] == [-32601, -32601]
    assert ["language model" in seen["words"][0], "folders" in seen["words"][1]] == [True, True]
    assert all("The tool model asked" in words for words in seen["words"])
    assert seen["nags"] == 10, "of many"


async def test_a_modern_server_asks_in_rounds(stage: Stage) -> None:
    """The call goes on with the answers (MCP 2026-07-28), also with a refusal."""
    seen = await stage.play("rounds", "vic")
    assert "Booked: 4 guests, terrace, away from the door." in seen["booked"]
    assert "Not booked: declined." in seen["declined"]


async def test_prompts_are_filled_in_and_read(stage: Stage) -> None:
    """With what the server suggests; one that it adds appears by itself, and many words of it cost few requests."""
    seen = await stage.play("prompts", "vic")
    assert (seen["faults"], seen["offers"]) == (["Fill this in."], ["Lisbon", "Lima", "Linz"])
    assert "hello to Lima" in seen["message"].replace("**", "")
    assert 0 < seen["lists"] < 10
    assert (seen["harmed"], seen["markup"]) == (None, 0)


async def test_resources_are_read_and_shown(stage: Stage) -> None:
    """Markdown without its HTML, HTML as text, pictures, bytes to download, and one by the variables of a template."""
    seen = await stage.play("resources", "vic")
    assert seen["links"] == 0 and "<h1>Page</h1>" in seen["html"]
    assert seen["filename"] == "bytes.bin"
    assert "You read asking://city/S%C3%A3o%20Paulo?lang=pt" in seen["city"]
    assert (seen["harmed"], seen["markup"]) == (None, 0)


async def test_files_are_dropped_chosen_and_taken_again(stage: Stage) -> None:
    """In a list within an object, as chips that the keyboard removes; sizes are judged before anything is sent. The
    words that the adapter has for models are not shown."""
    seen = await stage.play("files", "vic", limit=10 * MIB)
    assert seen["about"].endswith("Weighs files.")
    assert "handle" not in seen["words"] and "at most 10 MiB" in seen["words"]
    assert seen["removed"] == 0 and "huge.txt has" in seen["refusal"]
    assert seen["focused"] == "Remove one.txt from sources 1"
    assert sorted(seen["said"]) == ["first", "second", "third"]


async def test_sessions_and_settings_are_shown_without_secrets(stage: Stage) -> None:
    """A viewer's own sessions, an operator's all; no token, signature or header value in the settings."""
    for name in ("anna", "vic"):
        await listing(stage.house, name)
    viewer, operator = [await stage.play("around", name) for name in ("vic", OPERATOR)]
    assert "anna" in operator["sessions"] and "anna" not in viewer["sessions"]
    assert "operators" in viewer["configuration"]
    assert not [secret for secret in SECRETS if secret in viewer["configuration"] + operator["configuration"]]


async def test_much_does_not_freeze_the_page(stage: Stage) -> None:
    """With 5,000 tools, and while ten megabytes arrive, a click is answered within two seconds."""
    seen = await stage.play("heavy", "vic")
    assert seen["rows"] < 60
    assert max(seen["waits"]) < 2000


async def test_without_tokens_the_page_works_on_loopback(browser: Theatre, tmp_path: Path) -> None:
    """Nothing is asked for; tools are found and run, and files go in and out."""
    async with house(tmp_path, auth=False) as opened:
        stage = Stage(opened, browser)
        assert (await stage.play("find", None))["rows"] == 3
        uploaded = await stage.play("upload", None, name=UNICODE, size=MIB)
        assert f"{uploaded['digest']} {MIB} {UNICODE}" in uploaded["said"]
        drawn = await stage.play("artifact", None, name="chart.png")
        assert base64.b64decode(drawn["files"][1]) == opened.kept("chart.png")

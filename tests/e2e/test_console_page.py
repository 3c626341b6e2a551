"""The console's page in the system's chromium, with scripted servers behind it: what a reader does, and what it
withstands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.console_backend import Backend, serving
from tests.e2e.console_house import Theatre, theatre
from tests.e2e.console_script import GRANT, HOSTILE_CLIENT, REFUSAL, connect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCENES = Path(__file__).parent / "console" / "scenes.mjs"
NOTHING: dict[str, list[str]] = {"dialogs": [], "errors": [], "elsewhere": []}
"""What a browser reports of a page that behaves: no dialog, no uncaught error, no request to another host."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(
    node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Theatre]:
    async with theatre(node, chromium, tmp_path_factory.mktemp("theatre"), SCENES) as opened:
        yield opened


@pytest.fixture
def stage(browser: Theatre) -> Stage:
    return Stage(browser)


class Stage:
    """Where the scenes below ``console`` are played."""

    def __init__(self, browser: Theatre) -> None:
        self._browser = browser

    async def play(self, scene: str, backend: Backend, *words: str) -> dict[str, Any]:
        """What the scene saw. Fails with its error when it does not come to its end."""
        async with serving(backend) as url:
            return await self.play_at(url, scene, *words)

    async def play_at(self, url: str, scene: str, *words: str) -> dict[str, Any]:
        """The same, on the page at this URL."""
        return await self._browser.play(scene, url, words=words)


def calm(seen: dict[str, Any]) -> bool:
    """Whether the browser had nothing to report."""
    return {name: seen[name] for name in NOTHING} == NOTHING


async def test_plots_are_drawn_where_they_can_do_no_harm(stage: Stage) -> None:
    """A chart and a diagram, each in a frame without an origin, under the policy as it is."""
    seen = await stage.play("plots", Backend())
    assert seen["origins"] == ["null", "null"]
    assert "prints" in seen["texts"][0] and "Reminder" in seen["texts"][1]
    assert seen["violations"] == [] and calm(seen)


async def test_ill_servers_stand_first_and_say_why(stage: Stage) -> None:
    """On their own page too; of a refusal an https address can be opened, and nothing else, in a tab that knows nothing
    of this one."""
    seen = await stage.play("ill", Backend())
    assert seen["order"] == ["warehouse", "studio", "browser"]
    assert "No answer to a ping within 5 s." in seen["why"]
    assert seen["links"] == [{"href": GRANT, "text": GRANT, "rel": "noopener noreferrer", "target": "_blank"}]
    assert seen["wide"] == 390 and calm(seen)


async def test_titles_of_tools_are_shown(stage: Stage) -> None:
    """``title``, or that of the annotations, beside the name by which a tool is called."""
    seen = await stage.play("titles", Backend())
    assert "Paint a landscape" in seen["head"] and "draw_landscape" in seen["head"]
    for words in ("draw_landscape Paint a landscape", "import_catalogue Catalogue import"):
        assert any(words in row for row in seen["rows"]), seen["rows"]
    assert calm(seen)


async def test_the_form_and_its_json_say_the_same(stage: Stage) -> None:
    """Only what is required is filled in before; what a field cannot show it keeps; faults stand at their fields."""
    backend = Backend()
    seen = await stage.play("form", backend)
    assert seen["prefilled"] == {"destination": None, "departure": None, "travellers": 2}
    assert seen["faults"] == ["Fill this in.", "Fill this in."]
    filled = {
        "destination": "Lisbon",
        "departure": "2026-09-01T08:30:15Z",
        "travellers": 2,
        "class": "business",
        "refundable": True,
        "stops": [{"place": "Porto"}],
    }
    assert seen["filled"] == filled
    assert seen["budget"] == '"much"'
    assert backend.calls == [("plan_trip", {**filled, "travellers": 3, "budget": "much", "unknown": [1]})]
    assert calm(seen)


async def test_snippets_are_the_call_itself(stage: Stage) -> None:
    """Pasted into a shell or run by Python they send the very arguments; the token is named and not written down."""
    backend = Backend(auth=True)
    path = 'it\'s "$HOME" `id` \\ \n – 🖇'
    environment = {**os.environ, "MCP_TOKEN": "token-of-vic"}
    async with serving(backend) as url:
        seen = await stage.play_at(url, "snippets", path)
        for command in (["sh", "-c", seen["curl"]], [sys.executable, "-c", seen["python"]]):
            running = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await running.communicate()
            assert running.returncode == 0 and b"31971" in said
    assert backend.calls == [("count_words", {"path": path})] * 2
    assert "token-of-vic" not in seen["curl"] + seen["python"] and calm(seen)


async def test_exchanges_appear_as_they_happen(stage: Stage) -> None:
    """Held, the table stays while more happens; opened, one shows its stages."""
    seen = await stage.play("exchanges", Backend())
    assert seen["held"] == seen["still"] >= 25
    assert seen["stages"] == ["gate", "pins", "uploads", "upstream", "artifacts"]
    assert 0 < seen["kept"] < seen["held"] and calm(seen)


async def test_a_phone_is_wide_enough(stage: Stage) -> None:
    """The rail comes on demand, nothing is wider than 390 pixels, and the theme is remembered."""
    seen = await stage.play("around", Backend())
    assert seen["quota"] == "47" and seen["theme"] == "dark"
    assert seen["wide"] == 390 and calm(seen)


async def test_the_overview_says_how_servers_are_and_what_happened(stage: Stage) -> None:
    """In words, with the reason, its time and the server's own text; terms stand in tooltips for the keyboard too; the
    last hour is a picture and a table."""
    seen = await stage.play("overview", Backend())
    assert seen["words"] == ["not reachable", "blocks changed tools", "refuses callers"]
    assert seen["looks"] == ["dot bad", "dot warn", "dot warn"]
    lost, drift, refused = seen["notes"]
    assert "2 h ago" in drift and "until an operator accepts" in drift
    assert "insufficient_scope" in refused and seen["said"] == REFUSAL
    assert "No answer since 4 min ago" in lost
    for text in ("Mount all", "/mcp/all", "studio, browser", "warehouse is missing", "look of browser is"):
        assert text in seen["mount"]
    assert seen["tip"] == seen["described"] and "legacy" in seen["tip"]
    assert (seen["next"], seen["shown"]) == ("over HTTP", 0)
    assert seen["bars"] > 100 and seen["rows"] == 60 and "17 errors" in seen["label"]
    assert "2 of 3 replicas" in seen["told"] and "without c" in seen["told"]
    assert seen["clients"] == ["Cursor 2.1.0", HOSTILE_CLIENT, "not named"] and seen["markup"] == 0
    assert calm(seen)


async def test_clients_are_connected_with_the_entries_of_the_command(stage: Stage) -> None:
    """Each client's own, to copy; the token is named or has a placeholder, and is never there. The address of a merged
    mount comes first."""
    seen = await stage.play("connect", Backend())
    expected = connect("studio", "https://tools.example.com/studio/mcp")
    assert seen["first"] == expected["merged"][0]["url"]
    assert seen["addresses"] == ["Address of mount all", "Address of server studio"]
    assert seen["address"] == expected["url"]
    assert seen["entries"] == {each["title"]: each["text"] for each in expected["clients"]}
    links = {f"Add to {each['title']}": each["link"] for each in expected["clients"] if each["link"]}
    assert seen["links"] == links and len(links) == 2
    assert "REPLACE-WITH-MCP_ADAPTER_TOKEN" in seen["notice"]
    assert seen["copied"] == seen["entries"]["Claude Desktop"] and calm(seen)


async def test_a_call_of_ones_own_is_run_again(stage: Stage) -> None:
    """With its arguments while the page keeps them, and told of a file that is gone; another reader finds none. On a
    wide screen the result stands beside the form."""
    backend = Backend(auth=True)
    seen = await stage.play("again", backend)
    assert "filled in" in seen["kept"] and "is gone: upload://sessions/4be1/gone" in seen["kept"]
    assert seen["path"] == "upload://sessions/4be1/gone" and len(backend.calls) == 1
    assert "not kept any more" in seen["stranger"] and seen["left"] == ""
    assert seen["offered"] == 0 and seen["beside"] and calm(seen)


async def test_every_view_is_used_by_keyboard_alone(stage: Stage) -> None:
    """From the link that skips to the content to a call; nothing is out of reach, and dialogs give the focus back."""
    backend = Backend()
    seen = await stage.play("keyboard", backend)
    views = ["Exchanges", "Files", "Sessions", "Configuration", "Overview"]
    assert seen["seen"][2:7] == views and seen["seen"][7:] == ["Back", "Claude Desktop", "Schema"]
    assert seen["seen"][0] == "Skip to content" and "modern" in seen["seen"][1]
    assert backend.calls == [("count_words", {"path": "upload://sessions/4be1/0c11"})] and calm(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(stage: Stage, scheme: str) -> None:
    """Of any impact: in no view, with nothing that opens in it, on no width, in neither color scheme."""
    assert (await stage.play("axe", Backend(), scheme))["found"] == []


async def test_w12_nothing_a_hostile_tool_says_runs(stage: Stage) -> None:
    """Markup in names, schemas, texts, types, links and plots stays text; the policy has nothing to stop."""
    seen = await stage.play("hostile", Backend(rough=True))
    assert set(seen["harmed"]) == {None}
    assert seen["markup"] == 0
    assert not [
        href for href in seen["hrefs"] if not href.startswith(("http://127.0.0.1", "https:", "blob:"))
    ]
    assert set(seen["images"]) <= {"src", "alt", "loading", "decoding"}
    assert seen["violations"] == [] and calm(seen)

"""The helper tool: what it hands out, and that it opens the upload route for the one who asked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from adapter.errors import CredentialRefused, LimitReached, StoreUnavailable
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_offers import MOST_OFFERS, TABLE, UploadOffers
from adapter.relay.files.upload_tools import HelperTool, Offer, definition, workflow
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import batch_of
from adapter.settings.storage import Uploads
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from tests.relay.relaying import Clock, Relaying, of_tools, whole
from tests.relay.tooling import BASE, META, parsed
from tests.scripted import ScriptedUpstream
from tests.state.shared import SharedMemory

OFFER = Offer(
    server="demo",
    route="/upload",
    settings=Uploads(max_file_bytes=1000, max_files=5, require_sha256=False),
    consumers=(("read_text", "path"), ("attach", "files[].path")),
)
STRICT = Offer(
    "demo", "/upload", Uploads(max_file_bytes=1000, max_files=1, require_sha256=True), OFFER.consumers
)


class Helping:
    """A process that offers the helper tool and nothing else; its upstream must not be asked for it."""

    def __init__(self, offer: Offer = OFFER, store: MemoryStore | None = None) -> None:
        store = store or MemoryStore()
        self.scopes = Scopes(store, per_principal=False)
        self.relaying = Relaying(ScriptedUpstream(), store=store)
        self.credentials = Credentials(
            store, configured=None, ttl=120.0, clock=self.relaying.clock, page_ttl=900.0
        )
        self.offers = UploadOffers(self.credentials, self.scopes)
        stage = HelperTool(offer, self.offers)
        self.relaying = Relaying(
            ScriptedUpstream(), of_tools(**{offer.tool_name: stage}), store, self.relaying.clock
        )
        self.relaying.relay.call_gate.scope_of = self.scopes.of

    async def open(self) -> str:
        """Ready to be asked; a session of its client."""
        await self.scopes.open()
        await self.credentials.open()
        return await self.relaying.open()

    async def ask(self, session: str | None) -> dict[str, Any]:
        """The result of a call of the helper tool; without a session it is a modern one."""
        params: dict[str, Any] = {"name": "demo_get_upload_url", "arguments": {}}
        if session is None:
            params["_meta"] = META
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        ask = self.relaying.ask(body, session, base=BASE)
        result: dict[str, Any] = parsed(await whole(await self.relaying.relay.handle(ask)))["result"]
        return result

    async def offers_stored(self) -> list[Row]:
        return await self.relaying.store.scan(TABLE)

    async def scope(self, session: str | None) -> Scope:
        found = await self.relaying.sessions.find(session, "one", "anonymous") if session else None
        return self.scopes.of(found, "anonymous")


class Failing(MemoryStore):
    """A store that takes no more rows when told."""

    failing = False

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        if self.failing:
            raise StoreUnavailable()
        return await super().put(table, key, value, expected=expected, due=due)


def query_of(url: str) -> Mapping[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


@pytest.mark.parametrize("modern", [False, True])
async def test_answer_is_what_scripts_read(modern: bool) -> None:
    """As text and as structured content, complete for a modern client; nothing goes upstream."""
    helping = Helping()
    session = await helping.open()
    scope = await helping.scope(None if modern else session)
    came = await helping.ask(None if modern else session)
    (block,) = came["content"]
    held = came["structuredContent"]
    assert orjson.loads(block["text"]) == held and came["isError"] is False
    assert came.get("resultType") == ("complete" if modern else None)
    expires = datetime.fromisoformat(held["expires_at"]).timestamp()
    assert expires == helping.relaying.clock.now + 120
    texts = ("upload_url", "expires_at", "example_curl", "example_curl_multiple", "note", "integrity_note")
    added = ("upload_id", "open_in_browser", "page_expires_at", "message_for_person", "upload")
    assert all(held.pop(name) for name in texts + added)
    assert held == {
        "server_id": "demo",
        "tool_name": "demo_get_upload_url",
        "method": "POST",
        "headers": {"Mcp-Session-Id": scope.id},
        "auth_mode": "signed_upload_credentials",
        "credential_ttl_seconds": 120,
        "field_name": "file",
        "max_files": 5,
        "supports_multiple_files": True,
        "sha256_required": False,
        "sha256_field_name": "sha256",
        "sha256_per_file": True,
        "session_id": scope.id,
        "owner": "principal" if modern else "session",
        "max_file_bytes": 1000,
    }


async def test_url_is_good_for_the_one_who_asked() -> None:
    """Signed for the server and the scope, at the client's own address; every answer has another one."""
    helping = Helping()
    session = await helping.open()
    scope = await helping.scope(session)
    first, second = [(await helping.ask(session))["structuredContent"]["upload_url"] for _ in range(2)]
    assert first.startswith("http://adapter.test/upload/demo?") and first != second
    credential = await helping.credentials.check("demo", query_of(first))
    assert credential.scope == scope.id and await helping.scopes.find(scope.id) == scope
    await helping.credentials.spend(credential)
    assert (await helping.credentials.check("demo", query_of(second))).nonce != credential.nonce
    with pytest.raises(CredentialRefused):
        await helping.credentials.check("other", query_of(second))


async def test_a_person_gets_a_link_of_their_own() -> None:
    """Good for longer, said in one sentence, and for the same upload: what is used first ends both."""
    helping = Helping()
    held = (await helping.ask(await helping.open()))["structuredContent"]
    assert datetime.fromisoformat(held["page_expires_at"]).timestamp() == helping.relaying.clock.now + 900
    assert (
        held["open_in_browser"] in held["message_for_person"] and "15 minutes" in held["message_for_person"]
    )
    assert held["upload"] == {
        "transport": "https",
        "method": "POST",
        "url": held["upload_url"],
        "headers": {},
        "multipart": {"fileField": "file", "fields": {}},
        "expiresAt": held["expires_at"],
    }
    helping.relaying.clock.now += 121
    with pytest.raises(CredentialRefused):
        await helping.credentials.check("demo", query_of(held["upload_url"]))
    person = await helping.credentials.check("demo", query_of(held["open_in_browser"]))
    assert person.page
    helping.relaying.clock.now -= 121
    await helping.credentials.spend(await helping.credentials.check("demo", query_of(held["upload_url"])))
    helping.relaying.clock.now += 898
    await helping.credentials.expire()
    with pytest.raises(CredentialRefused):
        await helping.credentials.check("demo", query_of(held["open_in_browser"]))


async def test_offers_of_one_scope_are_bounded() -> None:
    """A caller who asks without end fills no store; another one still gets links."""
    helping = Helping()
    await helping.open()
    scope, other = (Scope(name, f"session:{name}") for name in ("one", "two"))
    for _ in range(MOST_OFFERS):
        await helping.offers.issue("demo", "ada", scope)
    with pytest.raises(LimitReached, match=r"uploads\.page_ttl_seconds") as refused:
        await helping.offers.issue("demo", "ada", scope)
    assert str(MOST_OFFERS) in str(refused.value)
    assert refused.value.retry_after is not None and 0 < refused.value.retry_after <= 900
    await helping.offers.issue("demo", "ada", other)


class Batch:
    """A batch on its way, of which nothing has come yet."""

    size = 0


async def test_word_of_a_batch_shortens_no_offer() -> None:
    """The files of one that came first may have been used while a second one was still on its way."""
    store, clock = SharedMemory().replica(), Clock()
    scopes = Scopes(store, per_principal=False, clock=clock)
    credentials = Credentials(store, configured=b"secret", ttl=120.0, clock=clock, page_ttl=900.0)
    offers = UploadOffers(credentials, scopes)
    await scopes.open()
    issued = await offers.issue("demo", "ada", scopes.of_principal("ada"))
    late, first = [await offers.find_of("demo", "ada", batch_of(issued.upload_id)) for _ in range(2)]
    assert late is not None and first is not None
    async with offers.arriving(late, Batch()):
        clock.now += 500
        await offers.use(first)
    known = await offers.find(first.batch)
    assert known is not None and known.due == first.due > late.due


async def test_no_link_tells_the_upload_id() -> None:
    """Whoever sees a link, in a log or over a shoulder, can neither ask what came by it nor name its files."""
    helping = Helping()
    held = (await helping.ask(await helping.open()))["structuredContent"]
    upload_id = held.pop("upload_id")
    assert len(upload_id) == 32 and upload_id not in str(held)
    assert not [row for row in await helping.offers_stored() if upload_id in str(row)]


async def test_secrets_are_in_no_answer() -> None:
    """The session's own id opens everything of it, so it is not said: the scope's public id is."""
    helping = Helping()
    session = await helping.open()
    assert session not in str(await helping.ask(session))


async def test_examples_can_be_pasted() -> None:
    """One shell command each, with the URL whole and a part for each file; digests where they are required."""
    helping, strict = Helping(), Helping(STRICT)
    held = (await helping.ask(await helping.open()))["structuredContent"]
    words = shlex.split(held["example_curl_multiple"])
    assert held["upload_url"] in words and [word for word in words if word.startswith("file=@")] == [
        "file=@first.pdf",
        "file=@second.pdf",
    ]
    held = (await strict.ask(await strict.open()))["structuredContent"]
    assert "sha256=$(sha256sum photo.png" in held["example_curl"] and "required" in held["integrity_note"]
    assert held["sha256_required"] is True and held["supports_multiple_files"] is False


async def test_failing_store_is_told_as_such() -> None:
    """No URL is handed out that no other process would know."""

    store = Failing()
    helping = Helping(store=store)
    session = await helping.open()
    store.failing = True
    with pytest.raises(StoreUnavailable) as raised:
        await helping.ask(session)
    assert raised.value.legacy_http == 200


def test_definition_is_a_harmless_tool_without_arguments() -> None:
    """Read-only, idempotent, of a closed world, as hosts read from its annotations."""
    tool = definition(OFFER)
    assert tool["name"] == "demo_get_upload_url" and "read_text" in tool["description"]
    assert tool["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    assert hints.items() <= tool["annotations"].items()


@pytest.mark.parametrize(("offer", "digest"), [(OFFER, "optional"), (STRICT, "required")])
def test_workflow_explains_the_way_of_a_file(offer: Offer, digest: str) -> None:
    """Which tools take files in which argument, which tool to ask first, and what the limits are."""
    document = workflow(offer)
    assert document.uri == "doc://upload_workflow.md" and document.media_type == "text/markdown"
    for word in (
        "`read_text`",
        "`files[].path`",
        "`demo_get_upload_url`",
        "1000 bytes",
        "upload_handle",
        digest,
    ):
        assert word in document.text

"""Sessions of browsers in cookies, and what nobody can do with them."""

from __future__ import annotations

import pytest

from adapter.errors import Unauthorized
from adapter.oauth.sign_in import BrowserSessions
from adapter.rules.access.browser_sessions import BrowserSession
from adapter.state.sealed_rows import StoreSeal
from adapter.state.sqlite import MemoryStore

ADA = BrowserSession("ada@https://a.example:1", frozenset({"mcp"}), {"groups": ["staff"]}, 1000.0)


async def sessions(secret: bytes = b"s" * 32, *, secure: bool = False, now: float = 100.0) -> BrowserSessions:
    """The sessions of one replica."""

    async def kept(_: bytes | None) -> bytes:
        return secret

    opened = BrowserSessions(
        StoreSeal(MemoryStore(), kept), ("/explorer", "/authorize"), secure=secure, clock=lambda: now
    )
    await opened.open()
    return opened


def sent(fields: list[tuple[str, str]]) -> dict[str, str]:
    """The head of a request from a browser that got the first of these cookies."""
    return {"Cookie": fields[0][1].partition(";")[0]}


async def test_every_replica_knows_who_signed_in() -> None:
    """The cookie of one is read by another with the same secret, until the session expires."""
    here, there, later = await sessions(), await sessions(), await sessions(now=1000.0)
    head = sent(here.begun(ADA))
    assert there.of(head) == ADA
    assert later.of(head) is None
    assert there.of({}) is None


async def test_cookies_are_for_our_pages_alone() -> None:
    """One for each path, for the time of the session, over TLS where there is TLS."""
    plain, secure = await sessions(), await sessions(secure=True)
    assert [field.partition("; ")[2] for _, field in plain.begun(ADA)] == [
        f"Path={path}; Max-Age=900; HttpOnly; SameSite=Lax" for path in ("/explorer", "/authorize")
    ]
    ((_, first), _) = secure.begun(ADA)
    assert first.startswith("__Secure-") and first.endswith("; Secure")
    assert secure.of(sent(secure.begun(ADA))) == ADA


async def test_a_cookie_that_was_changed_is_nobody() -> None:
    """Each character counts, and so does the secret."""
    ours, others = await sessions(), await sessions(b"o" * 32)
    head = sent(ours.begun(ADA))["Cookie"]
    name, _, value = head.partition("=")
    assert others.of({"Cookie": head}) is None
    for place in range(0, len(value), 7):
        changed = value[:place] + ("A" if value[place] != "A" else "B") + value[place + 1 :]
        assert ours.of({"Cookie": f"{name}={changed}"}) is None
    for other in ("", "x", "é", "A" * 40, "A" * 10_000, value[:20]):
        assert ours.of({"Cookie": f"{name}={other}"}) is None


async def test_one_cookie_is_not_another() -> None:
    """What a browser keeps under way signs nobody in, and the other way round."""
    ours = await sessions()
    under_way = sent(ours.under_way(b"data", 600))["Cookie"]
    signed_in = sent(ours.begun(ADA))["Cookie"]
    assert ours.returned({"Cookie": under_way}) == b"data"
    assert ours.of({"Cookie": signed_in.partition("=")[0] + "=" + under_way.partition("=")[2]}) is None
    assert ours.returned({"Cookie": under_way.partition("=")[0] + "=" + signed_in.partition("=")[2]}) is None


async def test_who_signs_out_has_no_cookie() -> None:
    """Browsers delete a cookie without lifetime."""
    ours = await sessions()
    for fields in (ours.ended(), ours.arrived()):
        assert all("=;" in field and "Max-Age=0" in field for _, field in fields)


async def test_claims_that_fit_no_cookie_are_an_error() -> None:
    """Rather than a browser that silently drops it."""
    ours = await sessions()
    with pytest.raises(Unauthorized, match="too large"):
        ours.begun(ADA._replace(claims={"groups": ["g" * 40] * 100}))


async def test_nobody_is_signed_in_before_the_key_is_read() -> None:
    """A replica whose store cannot be reached knows nobody."""

    async def never(_: bytes | None) -> bytes:
        raise AssertionError("not opened")

    head = sent((await sessions()).begun(ADA))
    assert BrowserSessions(StoreSeal(MemoryStore(), never), ("/explorer",), secure=False).of(head) is None


async def test_the_key_follows_the_store() -> None:
    """A store that lost the key is offered the one that is held; where it has another one, that counts."""
    kept, offered = [b"s" * 32], []

    async def secret(held: bytes | None) -> bytes:
        offered.append(held)
        return kept[0]

    seal = StoreSeal(MemoryStore(), secret)
    here = BrowserSessions(seal, ("/explorer",), secure=False, clock=lambda: 100.0)
    await here.open()
    head = sent(here.begun(ADA))
    seal.rows_unknown()
    await here.open()
    assert here.of(head) == ADA
    kept[0] = b"o" * 32
    seal.rows_unknown()
    await here.open()
    assert here.of(head) is None
    assert offered == [None, b"s" * 32, b"s" * 32]

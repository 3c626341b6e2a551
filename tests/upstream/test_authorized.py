"""Requests to an upstream carry the credential of their caller, and a 401 has it renewed once."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import CredentialsMissing, UpstreamRefused
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.principals import NOBODY, Caller
from adapter.upstream.authorized import AuthorizedUpstream, challenged_by, passed_on, refusal_by
from adapter.upstream.port import InitializeRequest, Share, UpstreamRequest, header, pour
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

ADA = Caller("ada:1", fields={"host": "here"})
CHALLENGE = ("WWW-Authenticate", 'Bearer error="invalid_token", error_description="<b>no</b>"')
REFUSED = ScriptedAnswer(401, [CHALLENGE], [b"not you"])
FINE = ScriptedAnswer(200, chunks=[b"one", b"two"])


class Numbered:
    """Credentials that are counted up when they are renewed, at most ``most`` times."""

    def __init__(self, most: int = 9) -> None:
        self.refusals: list[tuple[str, str | None, str | None]] = []
        self._most = most
        self._number: dict[str, int] = {}

    async def authorization(self, caller: Caller) -> str | None:
        if caller is NOBODY:
            return None
        return f"Bearer {caller.principal}/{self._number.get(caller.principal, 1)}"

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
        self.refusals.append((caller.principal, value, challenge))
        if len(self.refusals) > self._most:
            return False
        self._number[caller.principal] = self._number.get(caller.principal, 1) + 1
        return True


class NoCredentials:
    """Credentials that nobody has."""

    async def authorization(self, caller: Caller) -> str | None:
        raise CredentialsMissing(f"Nothing for {caller.principal}.")

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
        raise AssertionError("There was none that could be refused.")


def carrying(value: str | None, body: bytes | None = None, method: str = "POST") -> Expect:
    return Expect(method, body, {"authorization": value})


def post(caller: Caller, body: bytes = b"{}") -> UpstreamRequest:
    return UpstreamRequest("POST", [("Accept", "application/json")], body, caller)


def behind(upstream: ScriptedUpstream, credentials: Numbered | NoCredentials) -> AuthorizedUpstream:
    return AuthorizedUpstream(upstream, credentials, refusal_by("files"))


async def test_another_authorization_field_does_not_travel() -> None:
    """A field of that name that came with the request, in any spelling, is replaced."""
    upstream = ScriptedUpstream([(Expect("POST"), FINE), (Expect("POST"), FINE), (Expect("POST"), FINE)])
    fields = [("AUTHORIZATION", "Basic x"), ("Accept", "a"), ("authorization", "Basic y")]
    authorized = behind(upstream, Numbered())
    await authorized.send(UpstreamRequest("POST", fields, b"", ADA), 1)
    await authorized.send(UpstreamRequest("POST", SharedFields(fields), b"", ADA), 1)
    await authorized.send(UpstreamRequest("POST", fields, b"", NOBODY), 1)
    sent = [list(request.headers) for request in upstream.requests]
    assert sent == [[("Accept", "a"), ("Authorization", "Bearer ada:1/1")]] * 2 + [[("Accept", "a")]]


async def test_fields_that_many_requests_share_are_added_to_once() -> None:
    """The head of one connection stays shared while the credential does, and the request's own is left as it was."""
    upstream = ScriptedUpstream([(Expect("POST"), FINE)] * 3)
    authorized = behind(upstream, credentials := Numbered())
    fields = SharedFields([("Accept", "a")])
    for _ in range(2):
        await authorized.send(UpstreamRequest("POST", fields, b"", ADA), 1)
    await credentials.refused(ADA, "Bearer ada:1/1", None)
    await authorized.send(UpstreamRequest("POST", fields, b"", ADA), 1)
    first, second, third = (request.headers for request in upstream.requests)
    assert first is second and isinstance(first, SharedFields) and list(fields) == [("Accept", "a")]
    assert header(third, "authorization") == "Bearer ada:1/2"


async def test_401_renews_once_and_the_request_is_sent_again() -> None:
    """The same body goes out under the new value, the first answer is dropped, and the second is streamed."""
    upstream = ScriptedUpstream(
        [(carrying("Bearer ada:1/1", b"call"), REFUSED), (carrying("Bearer ada:1/2", b"call"), FINE)]
    )
    authorized = behind(upstream, credentials := Numbered())
    reply = await authorized.send(post(ADA, b"call"), 1)
    assert reply is upstream.replies[1], "an answer is handed out as it came, whole or in pieces"
    assert (await reply.read(1), await reply.read(1), await reply.read(1)) == (b"one", b"two", b"")
    assert credentials.refusals == [("ada:1", "Bearer ada:1/1", CHALLENGE[1])]


async def test_initialize_stays_one() -> None:
    """A request that may open a shared session is still such a request, also the second time."""
    upstream = ScriptedUpstream([(Expect("POST"), REFUSED), (Expect("POST"), FINE)])
    request = InitializeRequest("POST", [], b"{}", ADA, share=Share("ada:1"))
    await behind(upstream, Numbered()).send(request, 1)
    assert all(isinstance(each, InitializeRequest) and each.share for each in upstream.requests)


async def test_credentials_that_stay_the_same_are_not_sent_again() -> None:
    """If the renewal brings the value that was refused, there is no second request."""

    class Stubborn(Numbered):
        async def authorization(self, caller: Caller) -> str | None:
            return "Bearer same"

    upstream = ScriptedUpstream([(carrying("Bearer same"), REFUSED)])
    with pytest.raises(UpstreamRefused):
        await behind(upstream, Stubborn()).send(post(ADA), 1)


async def test_403_with_a_challenge_is_told_and_another_is_an_answer() -> None:
    """A challenge for the adapter's credential must not start a sign-in of the client; nothing is renewed for it."""
    challenge = ("www-authenticate", 'Bearer error="insufficient_scope", scope="mail"')
    upstream = ScriptedUpstream(
        [(Expect("POST"), ScriptedAnswer(403, [challenge])), (Expect("POST"), ScriptedAnswer(403))]
    )
    authorized = behind(upstream, credentials := Numbered())
    with pytest.raises(UpstreamRefused, match=r"\(HTTP status 403, insufficient_scope\)"):
        await authorized.send(post(ADA), 1)
    assert (await authorized.send(post(ADA), 1)).status == 403 and credentials.refusals == []


@pytest.mark.parametrize("caller", [NOBODY, Caller("ada:1")], ids=["nobody", "ended-session"])
async def test_requests_without_a_client_go_without_a_credential(caller: Caller) -> None:
    """A probe, or the end of a session that idled, is sent all the same, and is answered with the 401 itself."""
    upstream = ScriptedUpstream([(carrying(None), REFUSED)])

    class Unrenewed(NoCredentials):
        async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
            return value is not None

    reply = await behind(upstream, Unrenewed()).send(post(caller), 1)
    assert (reply.status, reply.whole) == (401, b"not you")


async def test_renewal_that_fails_is_the_answer() -> None:
    """The first answer is dropped, so that no connection is left behind."""

    class Revoked(Numbered):
        async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:
            raise CredentialsMissing("The grant was revoked.")

    held = asyncio.Event()
    upstream = ScriptedUpstream([(Expect("POST"), ScriptedAnswer(401, [CHALLENGE], [held, b"late"]))])
    with pytest.raises(CredentialsMissing, match="revoked"):
        await behind(upstream, Revoked()).send(post(ADA), 1)
    assert upstream.replies[0].aborted


async def test_answer_is_poured_as_without_credentials() -> None:
    """The wrapper stands in no stream: what pours itself goes on doing so."""
    pieces: list[bytes] = []

    class Kept:
        def put(self, chunk: bytes, *, more: bool = False) -> bool:
            pieces.append(chunk)
            return True

        async def drained(self) -> None:
            raise AssertionError("It was never full.")

    upstream = ScriptedUpstream([(Expect("GET"), FINE)])
    reply = await behind(upstream, Numbered()).send(UpstreamRequest("GET", [], b"", ADA), 1)
    await pour(reply, Kept(), 1)
    assert pieces == [b"one", b"two"]


async def test_closing_closes_the_upstream() -> None:
    """Connections are the upstream's."""
    upstream = ScriptedUpstream()
    await behind(upstream, Numbered()).close()
    assert upstream.closed


async def test_message_that_was_refused_without_an_answer_is_a_401() -> None:
    """An upstream that can only raise is treated as one that answers."""
    upstream = ScriptedUpstream([(Expect("POST"), UpstreamRefused()), (Expect("POST"), FINE)])
    assert (await behind(upstream, Numbered()).send(post(ADA), 1)).status == 200


async def test_challenge_names_the_metadata_of_the_mount() -> None:
    """All else of the answer stays, however it is read; a 403 without a challenge stays as it is."""
    place = "https://tools.example/.well-known/oauth-protected-resource/mcp"
    pieces = ScriptedAnswer(401, [CHALLENGE, ("X-A", "b")], [b"who", b"?"])
    upstream = ScriptedUpstream(
        [(Expect("POST"), pieces), (Expect("POST"), pieces), (Expect("POST"), ScriptedAnswer(403))]
    )
    authorized = AuthorizedUpstream(upstream, Numbered(0), challenged_by(place))
    reply = await authorized.send(post(ADA), 1)
    member = f'Bearer resource_metadata="{place}", error="invalid_token", error_description="<b>no</b>"'
    assert list(reply.headers) == [("X-A", "b"), ("WWW-Authenticate", member)]
    assert (reply.status, reply.whole, reply.needs_request) == (401, None, False)
    poured: list[bytes] = []

    class Kept:
        def put(self, chunk: bytes, *, more: bool = False) -> bool:
            poured.append(chunk)
            return True

        async def drained(self) -> None:
            raise AssertionError("It was never full.")

    await pour(reply, Kept(), 1)
    assert poured == [b"who", b"?"]
    reply = await authorized.send(post(ADA), 1)
    assert await reply.read(1) == b"who"
    reply.abort()
    assert upstream.replies[1].aborted
    assert await authorized.send(post(ADA), 1) is upstream.replies[2]


async def test_what_the_credentials_hold_is_released() -> None:
    """It is given up when the upstream is closed."""
    released = asyncio.Event()

    async def release() -> None:
        released.set()

    await AuthorizedUpstream(ScriptedUpstream(), Numbered(), passed_on, release).close()
    assert released.is_set()

"""Parked calls in several processes: a call goes on where its stream is, whichever process its client reaches."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import BadRequest, CallLost
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from tests.relay.eras.bridging import Processes, answer_to, calling, question
from tests.relay.sharing import Message


async def test_client_that_reaches_another_process_goes_on() -> None:
    """Its answer is forwarded, once; a second one is refused there too."""
    processes = Processes()
    one, two = processes.by_name.values()
    async with calling(one) as task:
        message, stream = await processes.upstream.next_call()
        stream.say(question("q", message="Who?"))
        asked = await task
        [key] = asked["result"]["inputRequests"]
        resumed = asyncio.create_task(two.resume(asked, {key: {"action": "accept"}}))
        await processes.upstream.until_said()
        stream.say(answer_to(message))
        assert "result" in await resumed
    assert processes.forwarded == ["one"] and processes.upstream.opened == 1


@pytest.mark.parametrize("begun_anew", [False, True])
async def test_call_of_a_process_that_has_gone_is_lost(begun_anew: bool) -> None:
    """Its replica is named; one that came back under its name knows nothing of it."""
    processes = Processes()
    one, two = processes.by_name.values()
    async with calling(one) as task:
        _, stream = await processes.upstream.next_call()
        stream.say(question("q", message="Who?"))
        asked: Message = await task
    if begun_anew:

        async def refuse(owner: str, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
            raise BadRequest()

        two.clients.forward = refuse
    else:
        del processes.by_name["one"]
    with pytest.raises(CallLost) as lost:
        await two.resume(asked, {})
    assert lost.value.data is not None and lost.value.data["replica"] == "one"
    await one.clients.close()

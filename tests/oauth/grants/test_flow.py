"""The way of a browser, where it may pass by any replica and nothing works twice."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest

from adapter.oauth.grants.flow import FlowFailed
from adapter.oauth.grants.grant_store import LINKS, MOST_STATES, STATES, GrantListener
from tests.oauth.grants.conftest import ALICE, BOB, Cluster, Replica, StartCluster


async def link_of(replica: Replica, principal: str = ALICE.principal) -> str:
    data = (await replica.links.required(replica.terms, principal)).data
    assert data is not None
    return str(data["elicitationId"])


def cookie(value: str | None) -> Callable[[str], str | None]:
    return lambda _: value


async def begun(it: Cluster, replica: Replica, person: str = "alice") -> dict[str, str]:
    """The parameters of the redirect after a person has consented."""
    url = await replica.flow.begin(await replica.flow.consent(await link_of(replica)), "cookie")
    return dict(parse_qsl(it.issuer.consent(url, person).partition("?")[2]))


async def test_one_answer_for_two_replicas(cluster: StartCluster) -> None:
    """The same redirect at two of them at once: one takes it."""
    async with cluster() as it:
        query = await begun(it, it.replica())
        await it.replica().flow.finish(query, cookie("cookie"))
        with pytest.raises(FlowFailed, match="used already"):
            await it.replica().flow.finish(query, cookie("cookie"))
        assert len(it.issuer.requests) == 1


async def test_one_link_fills_no_store(cluster: StartCluster) -> None:
    """Whoever begins again and again ends the browsers before; the last ones, and those of others, go on."""
    async with cluster() as it:
        one = it.replica()
        of_bob = await link_of(one, BOB.principal)
        url = await one.flow.begin(await one.flow.consent(of_bob), "cookie")
        bob = dict(parse_qsl(it.issuer.consent(url, "bob").partition("?")[2]))
        first = await begun(it, one)
        for _ in range(2 * MOST_STATES):
            it.clock.now += 0.1
            last = await begun(it, one)
        assert len(await it.store.scan(STATES)) == MOST_STATES + 1
        with pytest.raises(FlowFailed, match="used already"):
            await one.flow.finish(first, cookie("cookie"))
        for query in (last, bob):
            await one.flow.finish(query, cookie("cookie"))
        assert await one.credentials.authorization(ALICE) != await one.credentials.authorization(BOB)


async def test_a_link_is_the_same_for_a_while(cluster: StartCluster) -> None:
    """A client that calls again and again is not given a hundred links, on no replica; others get others."""
    async with cluster() as it:
        links = {await link_of(it.replica()) for _ in range(5)}
        assert len(links) == 1
        assert len(await it.store.scan(LINKS)) == 1
        assert await link_of(it.replica(), BOB.principal) not in links
        it.clock.now += 300
        assert await link_of(it.replica()) not in links


async def test_a_link_that_was_used_is_made_again(cluster: StartCluster) -> None:
    """Granted on one replica and revoked at once: the other one gives a link that works."""
    async with cluster() as it:
        one, two = it.replica(), it.replica()
        await link_of(two)
        await one.give(it.issuer)
        await one.grants.delete("notes", ALICE.principal)
        assert (await two.flow.consent(await link_of(two))).link.principal == ALICE.principal


async def test_links_and_states_end(cluster: StartCluster) -> None:
    """After their time they are refused, and the cleanup deletes them."""
    async with cluster() as it:
        one = it.replica()
        link = await link_of(one)
        query = await begun(it, one)
        it.clock.now += 901
        with pytest.raises(FlowFailed, match="not valid"):
            await one.flow.consent(link)
        with pytest.raises(FlowFailed, match="too late"):
            await one.flow.finish(query, cookie("cookie"))
        await one.links.tidy()
        assert await it.store.scan(LINKS) == await it.store.scan(STATES) == []


async def test_a_code_that_the_server_does_not_know(cluster: StartCluster) -> None:
    """Code injection: a code of another flow is refused by the server, since the verifier is another one."""
    async with cluster() as it:
        one = it.replica()
        stolen = await begun(it, one, "bob")
        query = await begun(it, one)
        with pytest.raises(FlowFailed, match="did not accept"):
            await one.flow.finish({**query, "code": stolen["code"]}, cookie("cookie"))
        assert await one.credentials.authorization(ALICE) is None


@pytest.mark.parametrize(
    "change", [{"code": ""}, {"state": "x"}, {"state": ""}, {"iss": "https://evil.example"}]
)
async def test_answers_with_a_part_that_is_wrong(cluster: StartCluster, change: dict[str, str]) -> None:
    """No request goes to the token endpoint."""
    async with cluster() as it:
        one = it.replica()
        query = await begun(it, one)
        with pytest.raises(FlowFailed):
            await one.flow.finish({**query, **change}, cookie("cookie"))
        assert it.issuer.requests == []


async def test_a_server_that_is_away(cluster: StartCluster) -> None:
    """The person is told, and no grant is there."""
    async with cluster() as it:
        one = it.replica()
        link = await link_of(one)
        query = await begun(it, one)
        await it.issuer.stop()
        with pytest.raises(FlowFailed, match="cannot be reached"):
            await one.flow.finish(query, cookie("cookie"))
        with pytest.raises(FlowFailed, match="cannot be used"):
            await it.replica().flow.consent(link)
        await it.issuer.start()


async def test_who_waits_is_told_once(cluster: StartCluster) -> None:
    """The sessions that were given the link, each once and not too many."""
    async with cluster() as it:
        one = it.replica()
        link = await link_of(one)
        for number in range(20):
            await one.links.listen(link, GrantListener("scope", f"session:{number}", str(number)))
            await one.links.listen(link, GrantListener("scope", f"session:{number}", str(number)))
        told: list[str] = []

        async def granted(found: object) -> None:
            told.extend(each.session for each in getattr(found, "listeners", ()))

        one.flow.on_granted = granted
        await one.flow.finish(await begun(it, one), cookie("cookie"))
        assert told == [str(number) for number in range(16)]


async def test_a_client_that_cannot_register(cluster: StartCluster) -> None:
    """The page names the setting that helps."""
    async with cluster() as it:
        it.issuer.metadata["registration_endpoint"] = None
        one = it.replica()
        consent = await one.flow.consent(await link_of(one))
        with pytest.raises(FlowFailed, match="client_id"):
            await one.flow.begin(consent, "cookie")

"""Nine clients at seven servers, feature by feature."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.eras_matrix import (
    CLIENTS,
    FEATURES,
    MISSING,
    UPSTREAMS,
    Clients,
    eras_known,
    fronting,
    lacks,
    mounts,
    servers,
    targets,
)
from tests.e2e.replicas import serving

pytestmark = pytest.mark.e2e


async def test_every_client_has_everything_at_every_server(
    node: Path, mcp1_python: Path, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """What it has directly at a server of both eras, it has through the adapter, whatever the upstream speaks."""
    clients = Clients(node, mcp1_python, fastmcp4_python, tmp_path)
    async with (
        servers(tmp_path, UPSTREAMS) as sections,
        # One person: without this each call of a modern client starts a process of a server over stdio.
        fronting(tmp_path, sections, sessions={"upstream": "principal"}) as front,
    ):
        await eras_known(front.base)
        for name in CLIENTS:
            direct = {"direct": sections["http both"]["url"]}
            all_found = await clients.find(name, direct | targets(front.base, UPSTREAMS))
            whole = all_found.pop("direct")
            assert set(whole) == set(FEATURES)
            assert not [text for text in whole.values() if text.startswith("!")], (name, whole)
            missing = {upstream: lacks(whole, each) for upstream, each in all_found.items()}
            expected = {upstream: MISSING.get((name, upstream), frozenset()) for upstream in UPSTREAMS}
            assert missing == expected, (name, all_found)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ({"replicas": 3}, {"ts_v1": "http modern", "python_v2 2026-07-28": "http legacy"}),
        ({"workers": 2}, {"python_v2 legacy": "http modern", "ts_v2 2026-07-28": "http legacy"}),
    ],
    ids=["replicas", "workers"],
)
async def test_bridged_clients_have_everything_at_several_processes(
    shape: dict[str, int],
    names: dict[str, str],
    node: Path,
    mcp1_python: Path,
    fastmcp4_python: Path,
    tmp_path: Path,
) -> None:
    """Each request of a client may reach another process, also an answer, a cancellation and a subscription."""
    clients = Clients(node, mcp1_python, fastmcp4_python, tmp_path)
    principal = {"upstream": "principal"}
    async with servers(tmp_path, ("http legacy", "http modern", "http both")) as sections:
        direct = {"direct": sections.pop("http both")["url"]}
        async with serving(tmp_path, "", **shape, servers=mounts(sections), sessions=principal) as front:
            await asyncio.gather(*(eras_known(each.base) for each in front.replicas or (front,)))
            finding = [
                clients.find(name, direct | targets(front.base, [upstream]))
                for name, upstream in names.items()
            ]
            for upstream, found in zip(names.values(), await asyncio.gather(*finding), strict=True):
                assert set(found["direct"]) == set(FEATURES)
                assert not lacks(found["direct"], found[upstream]), (upstream, found[upstream])

"""``mcp-adapter grants``: the grants that people have given for upstreams, listed and revoked."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from adapter import log
from adapter.app.access.grants import SECRET, asks_people, grant_http, grant_terms
from adapter.app.state import kept_store, sealed_rows
from adapter.commands.command_parser import failed, load_settings
from adapter.errors import StoreUnavailable
from adapter.oauth.grants.grant_store import GrantStore, ListedGrant
from adapter.oauth.grants.issuer_finder import ClientRegistry
from adapter.oauth.grants.renewal import GrantRenewal
from adapter.rules.text.unicode import shown
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings

DONE, NOTHING, FAILED = 0, 1, 2
"""Exit statuses; NOTHING is that of a revocation that found no such grant."""

ALL = "all"

NO_MEMORY = "state_persistence.type is memory, so only the running adapter knows the grants: use its console"


def run(options: argparse.Namespace) -> int:
    """Run a topic and print its result. Return the exit status."""
    settings = load_settings(options)
    log.configure("warning")
    entries = [each for each in settings.servers if asks_people(each) and options.server in (None, each.id)]
    if not entries:
        found = "no server" if options.server is None else f"the server {shown(options.server, 64)} is none"
        return failed(f"{found} with upstream.auth.type authorization_code", FAILED)
    if settings.state_persistence.type == "memory":
        return failed(NO_MEMORY, FAILED)
    try:
        return asyncio.run(_run(settings, entries, options))
    except StoreUnavailable as error:
        return failed(shown(str(error), 500), FAILED)


async def _run(settings: Settings, entries: Sequence[ServerSettings], options: argparse.Namespace) -> int:
    async with kept_store(settings) as store:
        grants = GrantStore(sealed_rows(settings, store, SECRET))
        found = [each for entry in entries async for each in grants.all(entry.id)]
        if options.topic == "list":
            return _printed(found, options)
        chosen = [each for each in found if _is_meant(each, options.grant)]
        for each in chosen:
            await _revoke(settings, grants, entries[0], each)
    if not chosen:
        print(f"mcp-adapter: no such grant for {entries[0].id}", file=sys.stderr)
    return DONE if chosen else NOTHING


def _is_meant(listed: ListedGrant, word: str) -> bool:
    principal = None if listed.grant is None else listed.grant.principal
    # An id may be shortened, as in a list; a name may be that of several principals, and then means all of them.
    return word in (ALL, principal, listed.name) or (len(word) >= 8 and listed.id.startswith(word))


async def _revoke(settings: Settings, grants: GrantStore, entry: ServerSettings, listed: ListedGrant) -> None:
    name = shown(listed.name or listed.id[:12], 200)
    terms = grant_terms(settings, entry)
    clients = ClientRegistry(terms, grants.rows, grant_http(terms))
    told = await GrantRenewal(grants, clients, None, log.get_logger("adapter")).revoke(listed)
    if listed.grant is None:
        print(f"{entry.id}: the grant {name} was forgotten; it cannot be opened, so its issuer was not told")
        return
    end = "and revoked at its issuer" if told else "its issuer was not told, or does not take it"
    print(f"{entry.id}: the grant of {name} was forgotten, {end}")


# --- lists ------------------------------------------------------------------------------------------------------


def _printed(found: Sequence[ListedGrant], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps([each.as_data() for each in found], indent=2))
        return DONE
    for each in found:
        print(_line(each, time.time()))
    if not found:
        print("no grants")
    return DONE


def _line(listed: ListedGrant, now: float) -> str:
    grant = listed.grant
    if grant is None:
        return f"{listed.server}  {listed.id[:12]}  cannot be opened: core.secret has changed"
    state = (
        "renewed as needed" if grant.refresh is not None else "ended" if grant.over(now) else "not renewable"
    )
    words = (
        listed.server,
        listed.id[:12],
        shown(listed.name or "", 200),
        shown(grant.issuer, 200),
        f"scope {shown(grant.scope, 200) or '-'}",
        f"since {datetime.fromtimestamp(grant.obtained, UTC):%Y-%m-%d %H:%M}Z",
        state,
    )
    return "  ".join(words)

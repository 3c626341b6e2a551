"""The access rules of a server, out of its settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from adapter.app.files import FileSecrets
from adapter.relay.call.access_stages import AccessGate
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.rules.access.access_rules import AccessRule, AccessRules, AllowPatterns, OwnOfferings, Scalar
from adapter.rules.access.principals import ANONYMOUS, DEFAULT_TOKEN
from adapter.rules.text.expressions import NamePattern, name_reading
from adapter.rules.text.unicode import shown
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.code_mode import CodeModeNames
from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.servers.policies import AccessEntry
from adapter.settings.servers.server import ServerSettings

LONGEST_SHOWN = 300
"""Characters of a list in a rule's description."""


def access_gate(
    entry: ServerSettings,
    entries: Sequence[AccessEntry],
    files: FileSecrets,
    tools: ToolGuard,
    *,
    folds: bool,
) -> AccessGate:
    """The gate of one server with these rules; ``folds``: it is in code mode."""
    names, found = CodeModeNames(entry.id), files.of(entry)
    # Whoever may call a tool may read what came of it.
    reads = frozenset({f"{entry.id}_read_artifact"}).intersection(tool["name"] for tool in found.own_tools)
    own = OwnOfferings(
        reads.union((names.search, names.schema, names.call) if folds else ()),
        found.documents,
        found.artifacts,
    )
    shared = entry.upstream.process == "shared" and entry.upstream.kind.needs == "command"
    return AccessGate(AccessRules([rule_of(each) for each in entries], own), tools, shared=shared)


def rule_of(entry: AccessEntry) -> AccessRule:
    """One entry of the settings as a rule."""
    claims: dict[str, tuple[Scalar, ...]] | None = None
    if entry.claims is not None:
        claims = {
            name: tuple(value) if isinstance(value, list) else (value,)
            for name, value in entry.claims.items()
        }
    return AccessRule(
        None if entry.principals is None else frozenset(entry.principals),
        None if entry.scopes is None else frozenset(entry.scopes),
        claims,
        AllowPatterns(_patterns(entry.tools), _patterns(entry.resources), _patterns(entry.prompts)),
        _patterns(entry.deny),
    )


def _patterns(sources: Sequence[str]) -> tuple[NamePattern, ...]:
    return tuple(map(NamePattern, sources))


# --- what is said of the rules before they are used ---------------------------------------------------------------


def described(entry: ServerSettings) -> list[str]:
    """One line for each access rule of a server: for whom it is, what it allows, and what it denies."""
    return [_described(each) for each in entry.access or ()]


def _described(entry: AccessEntry) -> str:
    conditions = {"principals": entry.principals, "scopes": entry.scopes, "claims": entry.claims}
    whose = [f"{name} {_listed(value)}" for name, value in conditions.items() if value is not None]
    allowed = {
        "tools": entry.tools,
        "resources": entry.resources,
        "prompts": entry.prompts,
        "deny": entry.deny,
    }
    what = [f"{name} {_listed(value)}" for name, value in allowed.items() if value]
    return f"{' and '.join(whose) or 'everybody'}: {'; '.join(what)}"


def _listed(values: Mapping[str, object] | Sequence[object]) -> str:
    if isinstance(values, Mapping):
        values = [f"{name}={value}" for name, value in values.items()]
    return shown(", ".join(map(str, values)), LONGEST_SHOWN)


def access_cautions(settings: Settings, known: Mapping[str, Collection[str]]) -> Iterator[Problem]:
    """A warning for each pattern that fits no tool, where the tools of its server are ``known``, for each principal
    that nobody is, and for each rule that nobody fulfils.
    """
    for place, server in enumerate(settings.servers):
        for number, entry in enumerate(server.access or ()):
            where = f"servers[{place}].access[{number}]"
            for name in _strangers(settings, entry):
                sentence = (
                    f"{shown(name, 100)} is the name of no caller: no token has it, and it names no issuer"
                )
                yield Problem(f"{where}.principals", sentence)
            if settings.core.auth.oauth is None and (entry.scopes is not None or entry.claims is not None):
                yield Problem(
                    where, "is for nobody: only OAuth tokens have scopes and claims; set core.auth.oauth"
                )
            for pattern in entry.tools if server.id in known else ():
                if not any(_fits(pattern, tool) for tool in known[server.id]):
                    yield Problem(
                        f"{where}.tools", f"{pattern} fits none of the tools that are known of {server.id}"
                    )


def _strangers(settings: Settings, entry: AccessEntry) -> list[str]:
    auth = settings.core.auth
    names = {ANONYMOUS} if not auth.enabled else {DEFAULT_TOKEN, *(token.name for token in auth.tokens)}
    # A principal of an authorization server has the server's URL in its name.
    return [name for name in entry.principals or () if name not in names and "@" not in name]


def _fits(pattern: str, tool: str) -> bool:
    read = name_reading(tool)
    return read is not None and NamePattern(pattern).allows(tool, read, uri=False)


def own_tools(server: str) -> frozenset[str]:
    """The names of the tools that the adapter may have for files of a server."""
    return frozenset(f"{server}_{name}" for name in ("get_upload_url", "upload_status", "read_artifact"))


def known_tools(settings: Settings, locked: Mapping[str, Catalogue]) -> dict[str, frozenset[str]]:
    """The tools of the servers that have theirs in the settings, or in a lock file, with those of the adapter."""
    known: dict[str, frozenset[str]] = {}
    for entry in settings.servers:
        own = own_tools(entry.id)
        if entry.upstream.kind.needs is None:
            known[entry.id] = own | {tool.name for tool in entry.tools.define}
        elif entry.id in locked:
            known[entry.id] = own | locked[entry.id].tools.keys()
    return known

"""Comparison of settings with those before them: the servers that changed, and the keys that hold for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from adapter.settings.file.changed import FileStamp, files_below, stamp_of
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings

DEFAULTS = frozenset(
    {
        "code_mode_enabled",
        "defaults",
        "disabled_tools",
        "errors",
        "short_description_max_tokens",
        "shorten_descriptions",
        "tool_definition_pinning",
        "tool_description_policy",
        "tool_metadata_sanitization",
        "upstream",
        "upstream_metadata_cache_ttl_seconds",
        "upstream_ping",
        "upstream_request_timeout_seconds",
    }
)
"""Keys of ``core`` that are defaults of servers. What else of it servers use is in force for the whole process."""

FREE = frozenset({"readiness", "max_start_wait_seconds"})
"""Keys of ``core`` that are read each time."""

CODE = frozenset((".py", ".sql"))
"""Suffixes of files that programs of tools are loaded from, once for each process."""


def digests_of_servers(settings: Settings) -> dict[str, str]:
    """A digest for each server by its id: another one where the server, or a default that it uses, changed."""
    return {entry.id: _digest(_of_server(settings, entry)) for entry in settings.servers}


def digests_of_mounts(settings: Settings) -> dict[str, str]:
    """A digest for each merged mount by its id: another one where it, or one of its servers, changed."""
    return {
        mount.id: _digest([mount, [_of_server(settings, entry) for entry in settings.members_of(mount)]])
        for mount in settings.mounts
    }


def lasting_digests(settings: Settings) -> dict[str, str]:
    """A digest for each key that holds as long as a process does."""
    found = {
        f"core.{name}": getattr(settings.core, name)
        for name in type(settings.core).model_fields
        if name not in DEFAULTS and name not in FREE
    }
    for name in type(settings).model_fields:
        section = getattr(settings, name)
        if isinstance(section, BaseModel) and name != "core":
            found |= {f"{name}.{key}": getattr(section, key) for key in type(section).model_fields}
        elif name not in ("core", "servers", "mounts"):
            found[name] = section
    return {key: _digest(value) for key, value in (found | _features(settings)).items()}


def _features(settings: Settings) -> dict[str, Any]:
    """The features that no process takes up later: their parts are loaded at the start, and only where needed."""
    servers = settings.servers
    plans = settings.asks_for_plans
    tools = [each for entry in servers for each in (*entry.stages.values(), *entry.tools.define)]
    shares = plans and any(each.cache.shared for each in tools)
    return {
        "servers[].adapters": any(entry.has_files for entry in servers),
        "servers[].tools": plans,
        "servers[].stages.cache.shared": shares and settings.state_persistence.type != "memory",
        "servers[].upstream.auth": any(entry.upstream.auth.type == "authorization_code" for entry in servers),
        "code of tools": sorted({*files_below(settings.directory, CODE), *_code_named(settings)})
        if plans
        else (),
    }


def _code_named(settings: Settings) -> Iterator[FileStamp]:
    """The files with code that the settings name, such as ``/opt/tools.py#handler``, wherever they are."""
    for text in _texts(_plain(settings)):
        file = Path(settings.directory, text.partition("#")[0])
        if file.suffix in CODE and "\0" not in text and (stamp := stamp_of(file)) is not None:
            yield (str(file), *stamp)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _of_server(settings: Settings, entry: ServerSettings) -> list[Any]:
    core = settings.core
    files = (entry.tools_lock, entry.upstream.auth.private_key_file)
    return [
        entry,
        [None if file is None else stamp_of(file) for file in files],
        settings.ping_for(entry),
        settings.tool_defaults_for(entry),
        settings.pinning_for(entry),
        settings.code_mode_for(entry),
        settings.sanitization_for(entry),
        settings.descriptions_for(entry),
        settings.errors_for(entry),
        core.errors.unknown_tool_code,
        core.shorten_descriptions if entry.shorten_descriptions is None else entry.shorten_descriptions,
        entry.short_description_max_tokens or core.short_description_max_tokens,
        core.disabled_tools,
        core.upstream,
        core.upstream_request_timeout_seconds,
        core.upstream_metadata_cache_ttl_seconds,
    ]


def _digest(value: object) -> str:
    text = json.dumps(_plain(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """The value of nothing but what JSON has. What was written is told from what is there anyway: some stages ask."""
    match value:
        case BaseModel():
            return [
                sorted(value.model_fields_set),
                [_plain(getattr(value, name)) for name in type(value).model_fields],
            ]
        case SecretStr():
            return value.get_secret_value()
        case Mapping():
            # Of globs the first that fits counts.
            return [[str(key), _plain(each)] for key, each in value.items()]
        case list() | tuple():
            return [_plain(each) for each in value]
        case set() | frozenset():
            return sorted(str(each) for each in value)
        case None | bool() | int() | float() | str():
            return value
    return str(value)

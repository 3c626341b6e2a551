"""``mounts[]``: merged mounts, each with the tools, resources and prompts of several servers at one address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from adapter.settings.section import Id, Problem, Seconds, Section, Spelled, TextList, UrlPath
from adapter.settings.servers.policies import Patterns
from adapter.settings.servers.server import ServerSettings

ALL = "*"

Prefix = Annotated[
    Literal["{server}_", "none"],
    BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value),
    Spelled("`{server}_` or none"),
]


class MountTools(Section):
    """Tools that clients see, by their names there."""

    allow: Patterns = Field(default_factory=lambda: [ALL])
    """Tools that are shown."""
    deny: Patterns = Field(default_factory=list)
    """Tools that are neither shown nor called."""


class MountSettings(Section):
    """One merged mount: several servers at one address."""

    id: Id
    """Unique name of the mount, which no server has: letters, digits, `_` and `-`."""
    path: UrlPath = Field(default="", json_schema_extra={"shown": "`/mcp/{id}`"})
    """Unique path at which clients reach the mount."""
    servers: Annotated[TextList, Spelled("list of ids, or `*`")]
    """Ids of the servers, the most trusted first; `*` means all."""
    prefix: Prefix = "{server}_"
    """Prefix of the names of tools and prompts. With `none` the first of two equal ones counts."""
    tools: MountTools = Field(default_factory=MountTools)
    list_timeout_seconds: Seconds = 3
    """Time that a list waits for servers; stored lists stand for late ones."""
    code_mode_enabled: bool = False
    """Show three tools for all of them."""

    @model_validator(mode="before")
    @classmethod
    def _path_follows_id(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("path") is None and isinstance(data.get("id"), str):
            return {**data, "path": f"/mcp/{data['id'].strip()}"}
        return data

    @property
    def has_all(self) -> bool:
        """Tell whether all servers of the file belong to the mount."""
        return self.servers == [ALL]


def mount_problems(mounts: Sequence[MountSettings], servers: Sequence[ServerSettings]) -> Iterator[Problem]:
    """Find mounts that share an id, and servers that are not there, or must not be in a mount."""
    by_id = {server.id: server for server in servers}
    taken = {server.id.lower(): f"servers[{index}]" for index, server in enumerate(servers)}
    for index, mount in enumerate(mounts):
        place = f"mounts[{index}]"
        if (other := taken.setdefault(mount.id.lower(), place)) != place:
            yield Problem(f"{place}.id", f"{mount.id} is already the id of {other}")
        yield from _strangers(mount, by_id, f"{place}.servers")
        for server in servers if mount.has_all else map(by_id.get, dict.fromkeys(mount.servers)):
            if server is not None and not server.in_mounts:
                yield from _exposed_caller(mount, server, f"{place}.servers")


def _strangers(mount: MountSettings, by_id: Mapping[str, ServerSettings], place: str) -> Iterator[Problem]:
    """Find ids of no server, and ids that are there twice."""
    if not mount.servers:
        yield Problem(place, "names no server: name at least one, or * for all")
    if mount.has_all:
        return
    seen: set[str] = set()
    for position, server in enumerate(mount.servers):
        where = f"{place}[{position}]"
        if server == ALL:
            yield Problem(where, "* stands alone: remove it, or all other ids")
        elif server not in by_id:
            yield Problem(where, f"there is no server with the id {server}")
        elif server in seen:
            yield Problem(where, f"{server} is named twice")
        seen.add(server)


def _exposed_caller(mount: MountSettings, server: ServerSettings, place: str) -> Iterator[Problem]:
    """Find what a client would send for one server, and every server of the mount that forwards it would get."""
    passed = ["Authorization"] if server.upstream.auth.type == "passthrough" else []
    passed += server.upstream.client_headers.passthrough
    if passed:
        sentence = (
            f"{server.id} gets {', '.join(passed)} from the client, for which {mount.id} is one server: "
            f"remove {server.id} here, or set in_mounts: true at that server"
        )
        yield Problem(place, sentence)

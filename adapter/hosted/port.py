"""The upstream port as a hosted server fulfils it: by shape alone, for rooms side by side do not know each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from adapter.rules.access.callers import Caller

Headers = Sequence[tuple[str, str]]
"""Header fields in their order, as ``adapter.upstream.port`` has them."""

Fields = Mapping[str, str]
"""Header fields by their name in lower case; of several of one name the first."""


class Request(Protocol):
    """One HTTP request to the MCP endpoint, its body perhaps in a content coding."""

    @property
    def method(self) -> str: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def body(self) -> bytes: ...

    @property
    def caller(self) -> Caller: ...


class Reply(Protocol):
    """One HTTP answer; see UpstreamReply for what is promised."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def whole(self) -> bytes | None: ...

    @property
    def needs_request(self) -> bool: ...

    async def read(self, silence: float | None) -> bytes: ...

    def abort(self) -> None: ...


def fields_of(headers: Headers) -> dict[str, str]:
    """The fields by their name; going backwards, the first of a name is the one that stays."""
    return {name.lower(): value for name, value in reversed(headers)}

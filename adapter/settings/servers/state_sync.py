"""``state_sync``: what models are told about how long the data of tools stays true."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapter.settings.values.section import CodeReference, Entries, Line, Section

CacheControl = Literal["no-store", "immutable"]


class SyncDefaults(Section):
    """What holds for tools of which nothing is said."""

    cache_control: CacheControl | None = Field(
        default=None, description="What may be kept of their results; null says nothing."
    )


class SyncPolicy(Section):
    """What holds for the tools that a glob matches; of several policies the first counts."""

    match: Line = Field(
        description="Glob for names as clients see them and for `server.tool`: `*` is one part, `**` any number."
    )
    cache_control: CacheControl | None = Field(
        default=None, description="What may be kept of their results; null: what `state_sync.defaults` says."
    )
    invalidates: Entries = Field(
        default_factory=list, description="Tools, as globs, whose data a success makes stale."
    )


class StateSyncSettings(Section):
    """What models are told about how long the data of tools stays true."""

    defaults: SyncDefaults = Field(
        default_factory=SyncDefaults, description="What holds for tools of which nothing is said."
    )
    wording: Literal["element", "system"] = Field(
        default="element",
        description="How results name what is stale: in an XML `element`, or in a sentence of the `system`.",
    )
    policies: list[SyncPolicy] = Field(default_factory=list, description="What holds for which tools.")
    observer: CodeReference = Field(
        default=None, description="Function that is told of everything that gets stale."
    )

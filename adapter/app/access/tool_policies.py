"""The policies for the tools of a server, and what they make of a tool's definition."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from adapter.errors import BadJson
from adapter.rules.files.tool_definitions import Wrapped, once_pinned
from adapter.rules.tools.definitions import EarlierForms, PinnedTool, no_earlier_forms, read_tool
from adapter.rules.tools.visibility import (
    Descriptions,
    Disabled,
    Policies,
    Sanitization,
    ShapedDefinition,
    apply,
    hides,
)
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Drop, Edit, Insert, edit

Decorate = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def policies_of(settings: Settings, entry: ServerSettings) -> Policies:
    """The policies for the tools of one server."""
    core = settings.core
    cleaning = settings.sanitization_for(entry)
    wrapped = wrapped_tools(settings, entry)
    lists = settings.artifacts.in_structured_content == "auto"
    describing = settings.descriptions_for(entry)
    return Policies(
        sanitization=Sanitization(
            mode=cleaning.mode,
            normalize_unicode=cleaning.normalize_unicode,
            remove_invisible=cleaning.remove_invisible_characters,
            max_title=cleaning.max_tool_title_chars,
            max_description=cleaning.max_tool_description_chars,
            max_schema_text=cleaning.max_schema_text_chars,
        ),
        descriptions=Descriptions(describing.mode, describing.max_tool_description_chars),
        shorten=core.shorten_descriptions
        if entry.shorten_descriptions is None
        else entry.shorten_descriptions,
        short_words=entry.short_description_max_tokens or core.short_description_max_tokens,
        disabled=Disabled.of([*core.disabled_tools, *entry.disabled_tools]),
        wrapped=wrapped,
        structured=frozenset(
            tool for tool, rule in wrapped.items() if lists and (rule.edits or rule.kind != "consumer")
        ),
    )


def wrapped_tools(settings: Settings, entry: ServerSettings) -> dict[str, Wrapped]:
    """The tools that the adapter gives files to or takes files from, by name; a tool may do both."""
    takers = entry.consumers if settings.uploads.enabled else []
    keeps = settings.artifacts.enabled
    taking = {tool: each.file_path_argument for each in takers for tool in each.tools}
    editing = {tool for each in takers if keeps and each.edits for tool in each.tools}
    writing = {tool for each in entry.producers if keeps and each.persist for tool in each.tools}
    return {
        tool: Wrapped(
            kind="producer" if tool not in taking else "both" if tool in writing else "consumer",
            argument=taking.get(tool),
            helper=f"{entry.id}_get_upload_url",
            artifact_scheme=settings.artifacts.uri_scheme,
            upload_scheme=settings.uploads.uri_scheme,
            edits=tool in editing,
        )
        for tool in (*taking, *(writing - taking.keys()))
    }


def shape_of(
    policies: Policies,
    decorate: Decorate | None = None,
    learn: Callable[[str, bytes], None] | None = None,
) -> Callable[[str, bytes], ShapedDefinition]:
    """Return the function that applies these policies to a definition; ``decorate`` adds what the tool's stages add.

    ``learn`` is given the definition of each tool whose structured content may list artifacts, without additions.
    """
    # Where nothing is wrapped only disabled tools are hidden, which ``apply`` looks for too.
    hidden = hides(policies) if policies.wrapped else None

    def shape(name: str, definition: bytes) -> ShapedDefinition:
        if hidden is not None and hidden(name):
            return ShapedDefinition(None)
        shaping = apply(policies, name, definition)
        if learn is not None and name in policies.structured and shaping.plain is not None:
            learn(name, shaping.plain)
        if shaping.raw is None or decorate is None:
            return shaping
        return shaping._replace(raw=_decorated(shaping.raw, decorate), plain=shaping.plain or shaping.raw)

    return shape


def earlier_forms(wrapped: Mapping[str, Wrapped], decorate: Decorate | None) -> EarlierForms:
    """Return the function that knows how earlier versions pinned a tool: with the words of that time, and what its
    stages add.
    """
    if not wrapped and decorate is None:
        return no_earlier_forms

    def forms(name: str, tool: PinnedTool) -> Iterator[str]:
        rule = wrapped.get(name)
        with contextlib.suppress(BadJson):
            for form in (tool.definition,) if rule is None else once_pinned(tool.definition, rule):
                pinned = read_tool(form if decorate is None else _decorated(form, decorate))
                if pinned is not None:
                    yield pinned.known

    return forms


def _decorated(raw: bytes, decorate: Decorate) -> bytes:
    """The definition with members added and removed; the other members keep their bytes."""
    definition = parse(raw)
    decorated = decorate(definition)
    edits: list[Edit] = [Drop((key,)) for key in definition.keys() - decorated.keys()]
    edits += [
        Insert((key,), dump(value)) for key, value in decorated.items() if value is not definition.get(key)
    ]
    return edit(raw, edits) if edits else raw

"""Pins of earlier versions, which were of definitions with what the adapter adds to them: they are no drift. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from adapter.rules.tools.definitions import PinnedTool, is_of_one_entry
from adapter.wire.piecewise import Piecewise, one_piece

EarlierForms = Callable[[str, PinnedTool], Iterable[str]]
"""Gives the digests (``known``) under which an earlier version pinned a tool of this name and definition."""

_EACH = 256


def no_earlier_forms(_name: str, _tool: PinnedTool) -> Iterable[str]:
    """See EarlierForms, for a server to whose definitions the adapter adds nothing."""
    return ()


def restated(
    tools: Mapping[str, PinnedTool], other: Mapping[str, PinnedTool], earlier: EarlierForms
) -> Piecewise[Mapping[str, PinnedTool]]:
    """The tools, with the definition that stands in ``other`` for each that is an earlier form of that.

    What differs then is what the upstream changed. With the same words the adapter would add to both, so a client is
    told the same.
    """
    found: dict[str, PinnedTool] = {}
    for place, (name, tool) in enumerate(other.items()):
        known = tools.get(name)
        if known is not None and known.known != tool.known:
            forms = yield from one_piece(partial(_forms, name, tool, earlier), len(tool.definition))
            if known.known in forms:
                found[name] = tool._replace(unknown=known.unknown)
        elif place % _EACH == 0:
            yield None
    return {**tools, **found} if found else tools


def _forms(name: str, tool: PinnedTool, earlier: EarlierForms) -> frozenset[str]:
    # Of a tool that stands twice only the second definition is kept, which says nothing of the first.
    return frozenset(earlier(name, tool)) if is_of_one_entry(tool) else frozenset()

"""Drift: the changes of a server's tools since they were pinned, and those that are remembered until accepted. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import orjson

from adapter.errors import BadJson
from adapter.rules.text.canonical_json import canonical, differences
from adapter.rules.tools.definitions import PinnedTool
from adapter.wire.envelope import parse, value_at
from adapter.wire.piecewise import Piecewise, at_once, one_piece

# MCP, "ToolAnnotations": the value that a client assumes of a tool without the hint, and the less safe value.
_HINTS = {"readOnlyHint": (False, False), "destructiveHint": (True, True), "openWorldHint": (True, True)}
_MOST_FIELDS = 50
_EACH = 512


class Rename(NamedTuple):
    """A tool with the same definition under another name."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Change:
    """The changes in one tool.

    ``fields`` are the paths of the differences in the known members, at most 50, then ``…``. ``unsafe`` names the
    annotations that became less safe. ``other_keys`` says that the unknown members differ; that alone does not
    change what a model is told.
    """

    name: str
    fields: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    other_keys: bool = False


@dataclass(frozen=True)
class Drift:
    """The tools that are not as they were pinned, each group in the order of names."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[Rename, ...] = ()
    changed: tuple[Change, ...] = ()

    @cached_property
    def unsettled(self) -> frozenset[str]:
        """The present tools that a model is told otherwise of than when they were pinned."""
        altered = (change.name for change in self.changed if change.fields)
        return frozenset((*self.added, *altered, *(rename.new for rename in self.renamed)))

    @cached_property
    def reasons(self) -> Mapping[str, Change | Rename]:
        """The changes and renames of the present tools, by present name; added tools are not in it."""
        changed: dict[str, Change | Rename] = {change.name: change for change in self.changed}
        return changed | {rename.new: rename for rename in self.renamed}

    @property
    def is_of_other_keys_only(self) -> bool:
        """Tell whether only members differ that a model is not told of."""
        return not (self.unsettled or self.removed)

    def within(self, sees: Callable[[str], bool]) -> Drift | None:
        """The drift of the tools with names that ``sees`` allows, None without any.

        Of a rename of which only one name may be seen, a tool was added or removed.
        """
        added = [name for name in self.added if sees(name)]
        removed = [name for name in self.removed if sees(name)]
        renamed = []
        for rename in self.renamed:
            old, new = sees(rename.old), sees(rename.new)
            if old and new:
                renamed.append(rename)
            elif new:
                added.append(rename.new)
            elif old:
                removed.append(rename.old)
        changed = tuple(change for change in self.changed if sees(change.name))
        found = Drift(tuple(sorted(added)), tuple(sorted(removed)), tuple(renamed), changed)
        return found if found.size else None

    @property
    def size(self) -> int:
        """The number of tools that are not as they were pinned."""
        return len(self.changed) + len(self.added) + len(self.renamed) + len(self.removed)


Pinned = Mapping[str, PinnedTool]


def drift(baseline: Pinned, now: Pinned) -> Drift | None:
    """Return the difference between two catalogues, by the names of their tools; None if there is none."""
    return at_once(drift_piecewise(baseline, now))


def drift_piecewise(baseline: Pinned, now: Pinned) -> Piecewise[Drift | None]:
    """As ``drift``."""
    added = sorted(now.keys() - baseline.keys())
    removed = sorted(baseline.keys() - now.keys())
    yield None
    changed: list[Change] = []
    for place, (name, tool) in enumerate(now.items()):
        before = baseline.get(name)
        if before is not None and before[:2] != tool[:2]:
            size = len(before.definition) + len(tool.definition)
            changed.append((yield from one_piece(partial(_change, name, before, tool), size)))
        elif place % _EACH == 0:
            yield None
    changed.sort(key=lambda change: change.name)
    renamed = yield from _renames(baseline, removed, now, added)
    old_names, new_names = {rename.old for rename in renamed}, {rename.new for rename in renamed}
    found = Drift(
        tuple(name for name in added if name not in new_names),
        tuple(name for name in removed if name not in old_names),
        tuple(renamed),
        tuple(changed),
    )
    return found if found.size else None


def _renames(baseline: Pinned, removed: list[str], now: Pinned, added: list[str]) -> Piecewise[list[Rename]]:
    if not removed or not added:
        return []
    gone: dict[str, list[str]] = {}
    for name in reversed(removed):
        behaviour = yield from one_piece(partial(_behaviour, baseline[name]), len(baseline[name].definition))
        gone.setdefault(behaviour, []).append(name)
    renames = []
    for name in added:
        behaviour = yield from one_piece(partial(_behaviour, now[name]), len(now[name].definition))
        if alike := gone.get(behaviour):
            renames.append(Rename(alike.pop(), name))
    return sorted(renames)


def _behaviour(pin: PinnedTool) -> str:
    """A digest of all that a model is told, but for the tool's name and titles."""
    value = definition_of(pin)
    annotations = value.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop("title", None)
    rest = {key: item for key, item in value.items() if key not in ("name", "title")}
    return hashlib.sha256(canonical(rest)).hexdigest()


def _change(name: str, old: PinnedTool, new: PinnedTool) -> Change:
    other_keys = old.unknown != new.unknown
    if old.known == new.known:
        return Change(name, other_keys=other_keys)
    before, after = definition_of(old), definition_of(new)
    fields = [difference.path for difference in islice(differences(before, after), _MOST_FIELDS + 1)]
    if len(fields) > _MOST_FIELDS:
        fields[-1] = "…"
    return Change(name, tuple(dict.fromkeys(fields)), _unsafe(before, after), other_keys)


def definition_of(pin: PinnedTool) -> dict[str, Any]:
    """The known members of a pinned tool; none where they cannot be read."""
    try:
        value = parse(pin.definition)
    except BadJson:
        return {}
    return value if isinstance(value, dict) else {}


def _unsafe(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        hint
        for hint, (assumed, unsafe) in _HINTS.items()
        if _hint(after, hint, assumed) is unsafe and _hint(before, hint, assumed) is not unsafe
    )


def _hint(definition: dict[str, Any], hint: str, assumed: bool) -> bool:
    stated = value_at(definition, "annotations", hint)
    return stated if isinstance(stated, bool) else assumed


# --- remembered -----------------------------------------------------------------------------------------------

MOST = 16
"""Catalogues of one server that are remembered: those that were met first, and the last."""

MOST_SCOPES = 256
"""Scopes that are remembered by their public ids, to count none of them twice."""


class DriftSummary(NamedTuple):
    """The number of tools that drifted in each way, and one sentence that names them."""

    counts: Mapping[str, int]
    sentence: str


class DriftSighting(NamedTuple):
    """A scope was shown another catalogue, ``digest``, than the ``baseline`` (digest) of its server.

    ``at`` is Unix time, ``by`` the public name of the principal. ``own``: the scope itself had seen other tools before.
    """

    baseline: str
    digest: str
    summary: DriftSummary
    at: float
    scope: str
    by: str
    own: bool

    def as_data(self) -> dict[str, Any]:
        """The JSON for an operator: no session's id is in it."""
        return {
            "digest": self.digest,
            "since": self.at,
            "by": self.by,
            "scope": self.scope,
            "counts": dict(self.summary.counts),
            "what": self.summary.sentence,
        }


@dataclass(frozen=True, slots=True)
class MetDrift:
    """One catalogue that is not the baseline. ``first`` is ``own`` if any meeting was.

    ``count`` scopes met it; ``scopes`` are the first of them.
    """

    first: DriftSighting
    count: int
    scopes: tuple[str, ...]

    def again(self, meeting: DriftSighting) -> MetDrift:
        """The same after another scope met it."""
        first = self.first._replace(own=self.first.own or meeting.own)
        if meeting.scope in self.scopes:
            return replace(self, first=first)
        return MetDrift(first, self.count + 1, (*self.scopes, meeting.scope)[:MOST_SCOPES])

    def as_data(self) -> dict[str, Any]:
        """The JSON for an operator: no session's id is in it."""
        return {**self.first.as_data(), "sessions": self.count}


@dataclass(frozen=True, slots=True)
class RememberedDrift:
    """All drift from the catalogue ``baseline`` of one server, in the order in which it was first met.

    ``more`` is the number of further catalogues.
    """

    baseline: str
    met: tuple[MetDrift, ...] = ()
    more: int = 0

    def with_meeting(self, meeting: DriftSighting) -> RememberedDrift:
        """The same with the catalogue that a scope met; of another baseline nothing is kept."""
        if meeting.baseline != self.baseline:
            return RememberedDrift(meeting.baseline).with_meeting(meeting)
        for place, each in enumerate(self.met):
            if each.first.digest == meeting.digest:
                met = (*self.met[:place], each.again(meeting), *self.met[place + 1 :])
                return replace(self, met=met)
        new = MetDrift(meeting, 1, (meeting.scope,))
        if len(self.met) < MOST:
            return replace(self, met=(*self.met, new))
        return replace(self, met=(*self.met[:-1], new), more=self.more + 1)

    def of_those_who_saw_both(self) -> RememberedDrift:
        """Without the catalogues that only others met, where a server offers each of its users other tools."""
        return replace(self, met=tuple(each for each in self.met if each.first.own))

    @property
    def sessions(self) -> int:
        """The number of sessions that met any of this drift; a session that met two catalogues counts twice."""
        return sum(each.count for each in self.met)

    def as_data(self) -> dict[str, Any]:
        """The JSON for an operator: no session's id is in it."""
        first = self.met[0].first
        return {
            "since": first.at,
            "by": first.by,
            "sessions": self.sessions,
            "catalogues": [each.as_data() for each in self.met],
            "more": self.more,
        }


def encode_remembered(drift: RememberedDrift) -> bytes:
    """A row's value; ``decode_remembered`` gives back an equal one."""
    met = [
        {**each.first.as_data(), "count": each.count, "own": each.first.own, "scopes": each.scopes}
        for each in drift.met
    ]
    return orjson.dumps({"baseline": drift.baseline, "met": met, "more": drift.more})


def decode_remembered(value: bytes) -> RememberedDrift:
    """Decode a row's value. Raises ValueError for a value of another version."""
    try:
        row = orjson.loads(value)
        baseline = str(row["baseline"])
        return RememberedDrift(baseline, tuple(_met(baseline, each) for each in row["met"]), int(row["more"]))
    except (TypeError, KeyError) as error:
        raise ValueError("not remembered drift") from error


def _met(baseline: str, row: Mapping[str, Any]) -> MetDrift:
    summary = DriftSummary(row["counts"], row["what"])
    first = DriftSighting(baseline, row["digest"], summary, row["since"], row["scope"], row["by"], row["own"])
    return MetDrift(first, row["count"], tuple(row["scopes"]))

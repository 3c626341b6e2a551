"""Presenters: what of a tool's data a model gets to see, and what is said beside it. Pure.

The order is fixed: truncate, parse, redact, then embedded presenters, interface blocks, rules and suggestions, all
from the redacted full view; ``_select`` thins only the data that is sent. There is no way around it: a presenter
takes the data of the typed outcome, and what a tool's code had written beside unredacted data is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from adapter.rules.access.redacted_values import Censor
from adapter.rules.calls.conditions import Condition
from adapter.rules.presenters import ui
from adapter.rules.presenters.shapes import Shape, ShapeRefused, StepsLeft
from adapter.rules.presenters.toon import toon
from adapter.rules.results.blocks import (
    NO_BLOCKS,
    Blocks,
    Suggestion,
    UiBlock,
    json_without_tags,
    without_tags,
)
from adapter.rules.results.outcomes import Result, text_block
from adapter.rules.schema.cost import STEPS
from adapter.rules.text.json_values import NotJson, compact, plain

SELECT = "_select"
"""The argument that names the members of the data a caller wants to see."""

Entry = TypeVar("Entry")
Says = Callable[[Any, Any], Any]
"""Loaded code: redacted data and context, to an entry, a list of them, or None. It is not awaited."""


class PresenterFailed(Exception):
    """Data that could not be presented. ``str`` is the sentence for the caller; the cause is for the log."""


@dataclass(frozen=True, slots=True)
class Suggest:
    """A suggestion that is made when its condition holds."""

    suggestion: Suggestion
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Data within the data, at a member of each item, with a presenter of its own."""

    key: str
    presenter: Presenter


@dataclass(frozen=True, slots=True)
class Presented:
    """``text`` is the data as it is sent, ``data`` the same as a value; ``blocks`` stand behind it."""

    text: str
    data: Any
    blocks: Blocks

    def result(self, *, structured: bool = False) -> Result:
        """The result of the call; with ``structured`` an object is its structured content too."""
        content = [text_block(text) for text in (self.text, *self.blocks.texts())]
        structured_data = self.data if structured and isinstance(self.data, dict) else None
        return Result(content, structured=structured_data, data=self.data, blocks=self.blocks)


@dataclass(frozen=True, slots=True)
class BlockSources:
    """Sources of the blocks beside data: fixed entries, and code that makes entries of the data.

    Rules are texts, entries of ``ui`` UiBlock, and entries of ``suggest`` Suggest, unless they are Says. In a
    declaration they stand as the settings have them.
    """

    rules: tuple[Any, ...] = ()
    ui: tuple[Any, ...] = ()
    suggest: tuple[Any, ...] = ()

    @property
    def calls_code(self) -> bool:
        """Tell whether an entry is code."""
        return any(map(callable, (*self.rules, *self.ui, *self.suggest)))


@dataclass(frozen=True, slots=True)
class SentData:
    """The form in which data is sent: ``limit`` is the most items of a list, None: any number; with ``select`` callers
    may name the members they want.
    """

    limit: int | None = None
    select: bool = False
    format: Literal["json", "toon"] = "json"


NO_SOURCES = BlockSources()
SENT_WHOLE = SentData()


@dataclass(frozen=True, slots=True, kw_only=True)
class Presenter:
    """The way in which the data of a tool is presented.

    Of ``item``, rules hold for every result, suggestions look at the first item of a list, and interface blocks at
    single items only. ``collection`` is for lists and sees the whole list: its rules are added to the others, its
    suggestions replace the others.
    """

    name: str
    shape: Shape | None = None
    censor: Censor | None = None
    item: BlockSources = NO_SOURCES
    collection: BlockSources = NO_SOURCES
    embeds: tuple[Embed, ...] = ()
    sent: SentData = SENT_WHOLE

    def __repr__(self) -> str:
        return f"<Presenter {self.name!r}>"

    @property
    def select_schema(self) -> dict[str, Any] | None:
        """The schema of ``_select`` as an input of the tool; None if it may not be given."""
        if not self.sent.select or self.shape is None or not self.shape.keys:
            return None
        return {"type": "array", "items": {"type": "string", "enum": list(self.shape.keys)}}

    @property
    def redacts(self) -> bool:
        """Tell whether a value is hidden from the caller, here or in an embedded presenter."""
        return self.censor is not None or any(embed.presenter.redacts for embed in self.embeds)

    @property
    def calls_code(self) -> bool:
        """Tell whether presenting calls functions of the user, which may take any time."""
        return (
            self.item.calls_code
            or self.collection.calls_code
            or (self.censor is not None and callable(self.censor.stand_in))
            or any(embed.presenter.calls_code for embed in self.embeds)
        )

    def present(
        self,
        data: Any,
        context: Any = None,
        *,
        select: Iterable[str] | None = None,
        beside: Blocks = NO_BLOCKS,
        steps: int = STEPS,
    ) -> Presented:
        """Return the data as a caller may see it.

        ``beside`` are the blocks of the tool itself; ``select`` counts only if the presenter lets callers select.
        ``steps`` is the limit for checks against JSON Schemas, embedded ones included. Raises PresenterFailed, and
        the error of a check whose steps are taken.
        """
        left = StepsLeft(steps)
        view, hidden = self._truncated(self._read(data))
        view = self.redacted(self._parsed(view, left))
        sent = _selected(view, frozenset(select)) if self.sent.select and select is not None else view
        blocks = self._blocks(view, context, left)
        if hidden:
            blocks = Blocks(ui=(_truncation(len(view), hidden),)) + blocks
        return Presented(self._written(sent), sent, blocks if self.redacts else beside + blocks)

    def redacted(self, view: Any) -> Any:
        """Return the view without the values that this presenter and the embedded ones hide. Raises PresenterFailed."""
        if self.censor is not None:
            view = self.censor(view)
        for embed in self.embeds:
            if embed.presenter.redacts:
                view = _replaced(view, embed.key, embed.presenter.redacted)
        if self.redacts and _holds_bare_text(view):
            # No path leads into a text, so nobody can say what of it is to be kept from the caller.
            raise self._failure('Validation failed:\n  - "(root)": Expected object, received string')
        return view

    # --- the data ---------------------------------------------------------------------------------------------

    def _read(self, data: Any) -> Any:
        try:
            return plain(data)
        except NotJson as error:
            raise self._failure(f"Not JSON: {error}") from error

    def _truncated(self, view: Any) -> tuple[Any, int]:
        """Return the view with at most ``limit`` items, and the number of items that it lacks."""
        limit = self.sent.limit
        if limit is None or not isinstance(view, list) or len(view) <= limit:
            return view, 0
        return view[:limit], len(view) - limit

    def _parsed(self, view: Any, left: StepsLeft) -> Any:
        if self.shape is None:
            return view
        try:
            return self.shape.parsed(view, left)
        except ShapeRefused as error:
            raise self._failure("\n".join(("Validation failed:", *error.bullets()))) from error

    def _written(self, view: Any) -> str:
        if view is None or isinstance(view, str):
            return without_tags(view or "OK")
        try:
            if self.sent.format == "toon":
                return without_tags(toon(view)) or "OK"
            return json_without_tags(compact(view))
        except NotJson as error:
            raise self._failure(f"Not JSON: {error}") from error

    # --- what stands beside it --------------------------------------------------------------------------------

    def _blocks(self, view: Any, context: Any, left: StepsLeft) -> Blocks:
        embedded = tuple(self._embedded(view, context, left))
        if isinstance(view, list):
            first = view[:1]
            return Blocks(
                ui=tuple(self._said(self.collection.ui, [view], context, _ui_block)),
                embedded=embedded,
                rules=(
                    *self._said(self.item.rules, first, context, _rule),
                    *self._said(self.collection.rules, [view], context, _rule),
                ),
                suggestions=tuple(
                    self._said(self.collection.suggest, [view] if view else [], context, _suggestion)
                    if self.collection.suggest
                    else self._said(self.item.suggest, first, context, _suggestion)
                ),
            )
        return Blocks(
            ui=tuple(self._said(self.item.ui, [view], context, _ui_block)),
            embedded=embedded,
            rules=tuple(self._said(self.item.rules, [view], context, _rule)),
            suggestions=tuple(self._said(self.item.suggest, [view], context, _suggestion)),
        )

    def _embedded(self, view: Any, context: Any, left: StepsLeft) -> Iterator[str]:
        """The blocks of embedded data: interface blocks of the first item only, all others once."""
        emitted: set[str] = set()
        for position, item in enumerate(view if isinstance(view, list) else [view]):
            for embed in self.embeds:
                nested = item.get(embed.key) if isinstance(item, Mapping) else None
                if nested is None:
                    continue
                child = embed.presenter
                blocks = child._blocks(child._parsed(nested, left), context, left)
                if position:
                    blocks = Blocks(
                        embedded=blocks.embedded, rules=blocks.rules, suggestions=blocks.suggestions
                    )
                fresh = [text for text in blocks.texts() if text not in emitted]
                emitted.update(fresh)
                yield from fresh

    def _said(
        self, sources: Sequence[Any], views: Sequence[Any], context: Any, read: Callable[[Any], Entry]
    ) -> Iterator[Entry]:
        """Yield the entries of the sources: fixed entries always, the others for each view."""
        for source in sources:
            if isinstance(source, Suggest):
                if any(source.when is None or source.when(view) for view in views):
                    yield read(source.suggestion)
            elif not callable(source):
                yield read(source)
            else:
                for view in views:
                    yield from self._told(source, view, context, read)

    def _told(self, says: Says, view: Any, context: Any, read: Callable[[Any], Entry]) -> Iterator[Entry]:
        try:
            # Each gets a view of its own: what one changes in it is neither sent nor what the next is told.
            answer = says(plain(view), context)
            if inspect.iscoroutine(answer):
                answer.close()
                raise TypeError("a presenter's function must be a plain function, without async")
            entries = answer if isinstance(answer, list | tuple) else [answer]
            yield from [read(entry) for entry in entries if entry is not None]
        except Exception as error:
            name = getattr(says, "__name__", "function")
            raise self._failure(f"{name} failed.") from error

    def _failure(self, text: str) -> PresenterFailed:
        return PresenterFailed(f"[{self.name} Presenter] {text}")


# --- entries --------------------------------------------------------------------------------------------------


def _rule(entry: Any) -> str:
    if not isinstance(entry, str):
        raise TypeError(f"a rule must be a text, not {type(entry).__name__}")
    return entry


def _ui_block(entry: Any) -> UiBlock:
    block = UiBlock(**entry) if isinstance(entry, Mapping) else entry
    if isinstance(block, UiBlock) and isinstance(block.content, str):
        return block
    raise TypeError(f"an interface block must come from a helper of ui, not be a {type(entry).__name__}")


def _suggestion(entry: Any) -> Suggestion:
    if isinstance(entry, Suggestion):
        return entry
    if isinstance(entry, Mapping):
        return Suggestion(str(entry["tool"]), str(entry["reason"]))
    raise TypeError(f"a suggestion must have a tool and a reason; {type(entry).__name__} does not")


# --- views ----------------------------------------------------------------------------------------------------


def _selected(view: Any, keys: frozenset[str]) -> Any:
    """The view with these of its own members; unknown ones are ignored."""
    if isinstance(view, list):
        return [_selected(item, keys) for item in view]
    return {key: member for key, member in view.items() if key in keys} if isinstance(view, dict) else view


def _replaced(view: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """The view with one member of it, or of each of its items, changed."""
    if isinstance(view, list):
        return [_replaced(item, key, change) for item in view]
    return {**view, key: change(view[key])} if isinstance(view, dict) and key in view else view


def _holds_bare_text(view: Any) -> bool:
    """Tell whether the view is, or lists, a text outside of any object that replaces no censored value."""
    return any(map(_holds_bare_text, view)) if isinstance(view, list) else type(view) is str


def _truncation(shown: int, hidden: int) -> UiBlock:
    return ui.summary(f"⚠️ Dataset truncated. {shown} shown, {hidden} hidden. Use filters to narrow results.")

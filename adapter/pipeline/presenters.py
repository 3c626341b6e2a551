"""Presenters as a configuration declares them, made into what presents data; all that is wrong is said at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce, wraps
from operator import getitem
from typing import Any, Literal, TypeVar

from adapter.rules.access.redacted_values import CENSORED, Censor, Censored, PathInvalid, censor_of, segments
from adapter.rules.calls.conditions import Condition, ConditionInvalid, compile_condition
from adapter.rules.presenters.blocks import Suggestion, UiBlock
from adapter.rules.presenters.declared_paths import JsonNotation, ShortNotation, unknown_name
from adapter.rules.presenters.presenters import Embed, Presenter, Says, Suggest
from adapter.rules.presenters.shapes import Check, Shape, StepsLeft, json_shape, shape_of

Load = Callable[[str, str], Callable[..., Any]]
"""The text of a reference and the place where it stands, to the function. Whatever it raises is a problem there."""
Judge = Callable[[Mapping[str, Any]], Check]
"""A JSON Schema, to what judges data by it. Raises ValueError for what is no JSON Schema."""
Problem = tuple[str, str]
"""A place in the configuration, and a sentence."""

Entry = TypeVar("Entry")

_SUGGESTION = ("when", "tool", "reason")
_BLOCK = ("type", "content", "title", "width", "priority")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class PresentersInvalid(ValueError):
    """Declarations that cannot be used; ``problems`` are all that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{place}: {sentence}" for place, sentence in self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenterDeclaration:
    """One presenter as it is written. A text that is a reference to code stands for what that code says; any other is
    said as it is, in rules and ``censor``, and refused elsewhere. ``embed`` names presenters by the member of the data.
    """

    schema: Mapping[str, Any] | None = None
    json_schema: Mapping[str, Any] | None = None
    limit: int | None = None
    redact_paths: tuple[str, ...] = ()
    censor: str = CENSORED
    rules: tuple[str, ...] = ()
    ui: tuple[Mapping[str, Any] | str, ...] = ()
    suggest: tuple[Mapping[str, Any] | str, ...] = ()
    collection_rules: tuple[str, ...] = ()
    collection_ui: tuple[Mapping[str, Any] | str, ...] = ()
    collection_suggest: tuple[Mapping[str, Any] | str, ...] = ()
    embed: Mapping[str, str] = field(default_factory=dict)
    select: bool = False
    format: Literal["json", "toon"] = "json"


def build(declarations: Mapping[str, PresenterDeclaration], load: Load, judge: Judge) -> dict[str, Presenter]:
    """The presenters by name. Raises PresentersInvalid, with places like ``presenters.user.suggest[0].when``."""
    building = _Building(declarations, load, judge)
    presenters = {name: building.presenter(name, ()) for name in declarations}
    if building.problems:
        raise PresentersInvalid(building.problems)
    return presenters


def is_reference(text: str) -> bool:
    """Tell whether a text names code, as ``path.py#function`` or ``path.py``, rather than being a sentence."""
    return ".py#" in text or text.endswith(".py")


class _Building:
    """Makes presenters and gathers what is wrong; where something is, a part is left out and nothing may be used."""

    def __init__(self, declarations: Mapping[str, PresenterDeclaration], load: Load, judge: Judge) -> None:
        self.problems: list[Problem] = []
        self._declarations = declarations
        self._load = load
        self._judge = judge
        self._made: dict[str, Presenter] = {}

    def presenter(self, name: str, within: tuple[str, ...]) -> Presenter:
        """The presenter of that name, made once; ``within`` are those that embed it, the outermost first."""
        if name not in self._made:
            self._made[name] = self._make(name, (*within, name))
        return self._made[name]

    def _make(self, name: str, within: tuple[str, ...]) -> Presenter:
        declared, place = self._declarations[name], f"presenters.{name}"
        if declared.limit is not None and declared.limit < 1:
            self._wrong(f"{place}.limit", "limit must be at least 1.")
        shape = self._shape(declared, place)
        return Presenter(
            name=name,
            shape=shape,
            limit=declared.limit,
            censor=self._censor(declared, f"{place}.redact", checked=shape is not None),
            rules=self._each(f"{place}.rules", declared.rules, self._rule),
            ui=self._each(f"{place}.ui", declared.ui, self._ui),
            suggest=self._each(f"{place}.suggest", declared.suggest, self._suggest),
            collection_rules=self._each(f"{place}.collection_rules", declared.collection_rules, self._rule),
            collection_ui=self._each(f"{place}.collection_ui", declared.collection_ui, self._ui),
            collection_suggest=self._each(
                f"{place}.collection_suggest", declared.collection_suggest, self._suggest
            ),
            embeds=tuple(self._embeds(declared, f"{place}.embed", within)),
            select=declared.select,
            format=declared.format,
        )

    def _embeds(self, declared: PresenterDeclaration, place: str, within: tuple[str, ...]) -> Iterator[Embed]:
        for key, name in declared.embed.items():
            if name not in self._declarations:
                self._wrong(f"{place}.{key}", f"The presenter {name!r} does not exist.")
            elif name in within:
                circle = " → ".join((*within[within.index(name) :], name))
                self._wrong(f"{place}.{key}", f"Presenters cannot embed themselves: {circle}.")
            else:
                yield Embed(key, self.presenter(name, within))

    # --- data -------------------------------------------------------------------------------------------------

    def _shape(self, declared: PresenterDeclaration, place: str) -> Shape | None:
        if declared.schema is not None and declared.json_schema is not None:
            self._wrong(f"{place}.json_schema", "Give schema or json_schema, not both.")
            return None
        try:
            if declared.json_schema is not None:
                place = f"{place}.json_schema"
                return json_shape(declared.json_schema, _past_censored(self._judge(declared.json_schema)))
            place = f"{place}.schema"
            return None if declared.schema is None else shape_of(declared.schema)
        except ValueError as error:
            self._wrong(place, str(error))
        return None

    def _censor(self, declared: PresenterDeclaration, place: str, *, checked: bool) -> Censor | None:
        """``checked``: there is a schema that has to have what the paths lead to."""
        read = partial(self._path, declared if checked else None)
        paths = self._each(f"{place}.paths", declared.redact_paths, read)
        if not paths:
            return None
        stand_in: Any = declared.censor
        if is_reference(declared.censor):
            stand_in = self._loaded(declared.censor, f"{place}.censor", most=1)
        return censor_of(paths, stand_in)

    def _path(self, declared: PresenterDeclaration | None, path: str, place: str) -> str | None:
        try:
            steps = segments(path)
        except PathInvalid as error:
            self._wrong(place, str(error))
            return None
        unknown = None
        if declared is not None and declared.schema is not None:
            unknown = unknown_name(steps, declared.schema, ShortNotation())
        elif declared is not None and declared.json_schema is not None:
            unknown = unknown_name(steps, [declared.json_schema], JsonNotation(declared.json_schema))
        if unknown is not None:
            # Whoever misspells it believes that it is hidden.
            self._wrong(place, f"{path}: {unknown}.")
        return path

    # --- what is said beside it -------------------------------------------------------------------------------

    def _each(
        self, place: str, entries: Iterable[Any], read: Callable[[Any, str], Entry | None]
    ) -> tuple[Entry, ...]:
        made = [read(entry, f"{place}[{at}]") for at, entry in enumerate(entries)]
        return tuple(entry for entry in made if entry is not None)

    def _rule(self, entry: str, place: str) -> str | Says | None:
        return self._loaded(entry, place) if is_reference(entry) else entry

    def _ui(self, entry: Mapping[str, Any] | str, place: str) -> UiBlock | Says | None:
        if not isinstance(entry, str):
            return self._ui_block(entry, place)
        if is_reference(entry):
            return self._loaded(entry, place)
        self._wrong(place, f"Write type and content, or path.py#function; not {entry!r}.")
        return None

    def _ui_block(self, entry: Mapping[str, Any], place: str) -> UiBlock | None:
        for key in entry.keys() - set(_BLOCK):
            self._wrong(f"{place}.{key}", f"An interface block must have {', '.join(_BLOCK)}.")
        missing = [key for key in ("type", "content") if not isinstance(entry.get(key), str)]
        for key in missing:
            self._wrong(f"{place}.{key}", "A text is required.")
        known = {key: entry[key] for key in _BLOCK if key in entry}
        return None if missing else UiBlock(**known)

    def _suggest(self, entry: Mapping[str, Any] | str, place: str) -> Suggest | Says | None:
        if isinstance(entry, str):
            if is_reference(entry):
                return self._loaded(entry, place)
            self._wrong(place, f"Write tool and reason, or path.py#function; not {entry!r}.")
            return None
        for key in entry.keys() - set(_SUGGESTION):
            self._wrong(f"{place}.{key}", f"A suggestion must have {', '.join(_SUGGESTION)}.")
        missing = [key for key in ("tool", "reason") if not isinstance(entry.get(key), str)]
        for key in missing:
            self._wrong(f"{place}.{key}", "A text is required.")
        when = self._condition(entry.get("when"), f"{place}.when")
        return None if missing else Suggest(Suggestion(entry["tool"], entry["reason"]), when)

    def _condition(self, text: Any, place: str) -> Condition | None:
        try:
            return None if text is None else compile_condition(str(text))
        except ConditionInvalid as error:
            self._wrong(place, str(error))
            return None

    # --- code -------------------------------------------------------------------------------------------------

    def _loaded(self, reference: str, place: str, most: int = 2) -> Says | None:
        """The function, callable with ``most`` arguments, of which it gets as many as it takes."""
        try:
            function = self._load(reference, place)
            taken = _taken(function, most)
        except Exception as error:
            # Somebody's code is imported here: what it raises says why it cannot be used.
            self._wrong(place, str(error) or type(error).__name__)
            return None

        @wraps(function)
        def says(*arguments: Any) -> Any:
            return function(*arguments[:taken])

        return says

    def _wrong(self, place: str, sentence: str) -> None:
        self.problems.append((place, sentence))


def _past_censored(check: Check) -> Check:
    """The check without what it has against values that are censored: data of embedded presenters is so already."""

    def judged(data: Any, left: StepsLeft) -> Iterator[tuple[Sequence[str | int], str]]:
        for place, keyword in check(data, left):
            if not isinstance(_at(data, place), Censored):
                yield place, keyword

    return judged


def _at(data: Any, place: Sequence[str | int]) -> Any:
    """The value at a place in data, None where there is none."""
    try:
        return reduce(getitem, place, data)
    except (LookupError, TypeError):
        return None


def _taken(function: Callable[..., Any], most: int) -> int:
    """The number of arguments, at most ``most``, that a function takes.

    Raises ValueError for a function that cannot be called so.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError("A presenter's function must be a plain function, without async.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Written in C, without a signature.
        return most
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return most
    parameters = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    accepted = sum(each.kind in _POSITIONAL for each in parameters)
    demanded = [each.kind in _POSITIONAL for each in parameters if each.default is each.empty]
    if not accepted or not all(demanded) or len(demanded) > most:
        raise ValueError(f"The function must take {'(data) or (data, ctx)' if most > 1 else '(value)'}.")
    return min(accepted, most)

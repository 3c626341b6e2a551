"""Presenters, made of their declarations in the settings; all problems are reported at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce, wraps
from operator import getitem
from typing import Any, TypeVar

from adapter.rules.access.redacted_values import Censor, Censored, PathInvalid, censor_of, segments
from adapter.rules.calls.conditions import Condition, ConditionInvalid, compile_condition
from adapter.rules.presenters.presenters import (
    BlockSources,
    Embed,
    Presenter,
    Says,
    SentData,
    Suggest,
)
from adapter.rules.presenters.shapes import (
    Check,
    Shape,
    StepsLeft,
    as_json_schema,
    json_shape,
    shape_of,
    unknown_name,
)
from adapter.rules.results.blocks import Suggestion
from adapter.settings.pipeline import PresenterSettings, SuggestionSettings

Load = Callable[[str, str], Callable[..., Any]]
"""The text of a reference and the place where it stands, to the function. Whatever it raises is a problem there."""
Judge = Callable[[Mapping[str, Any]], Check]
"""A JSON Schema, to what judges data by it. Raises ValueError for what is no JSON Schema."""
Problem = tuple[str, str]
"""A place in the configuration, and a sentence."""

Entry = TypeVar("Entry")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class PresentersInvalid(ValueError):
    """Declarations that cannot be used; ``problems`` are all that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{place}: {sentence}" for place, sentence in self.problems))


def build(declarations: Mapping[str, PresenterSettings], load: Load, judge: Judge) -> dict[str, Presenter]:
    """The presenters by name. Raises PresentersInvalid, with places like ``presenters.user.suggest[0].when``."""
    building = _PresenterBuilder(declarations, load, judge)
    presenters = {name: building.presenter(name, ()) for name in declarations}
    if building.problems:
        raise PresentersInvalid(building.problems)
    return presenters


def is_reference(text: str) -> bool:
    """Tell whether a text names code, as ``path.py#function`` or ``path.py``, rather than being a sentence."""
    return ".py#" in text or text.endswith(".py")


class _PresenterBuilder:
    """Makes presenters and collects problems. A part with a problem is left out; nothing may be used then."""

    def __init__(self, declarations: Mapping[str, PresenterSettings], load: Load, judge: Judge) -> None:
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
        shape = self._shape(declared, place)
        return Presenter(
            name=name,
            shape=shape,
            censor=self._censor(declared, f"{place}.redact", checked=shape is not None),
            item=self._sources(f"{place}.", declared.rules, declared.ui, declared.suggest),
            collection=self._sources(
                f"{place}.collection_",
                declared.collection_rules,
                declared.collection_ui,
                declared.collection_suggest,
            ),
            embeds=tuple(self._embeds(declared, f"{place}.embed", within)),
            sent=SentData(declared.limit, declared.select, declared.format),
        )

    def _sources(
        self,
        place: str,
        rules: Iterable[str],
        ui: Iterable[str],
        suggest: Iterable[str | SuggestionSettings],
    ) -> BlockSources:
        return BlockSources(
            self._each(f"{place}rules", rules, self._rule),
            self._each(f"{place}ui", ui, self._loaded),
            self._each(f"{place}suggest", suggest, self._suggest),
        )

    def _embeds(self, declared: PresenterSettings, place: str, within: tuple[str, ...]) -> Iterator[Embed]:
        for key, name in declared.embed.items():
            if name not in self._declarations:
                self._wrong(f"{place}.{key}", f"The presenter {name!r} does not exist.")
            elif name in within:
                circle = " → ".join((*within[within.index(name) :], name))
                self._wrong(f"{place}.{key}", f"Presenters cannot embed themselves: {circle}.")
            else:
                yield Embed(key, self.presenter(name, within))

    # --- data -------------------------------------------------------------------------------------------------

    def _shape(self, declared: PresenterSettings, place: str) -> Shape | None:
        try:
            if declared.json_schema is not None:
                place = f"{place}.json_schema"
                return json_shape(declared.json_schema, _past_censored(self._judge(declared.json_schema)))
            place = f"{place}.schema"
            return None if declared.shape is None else shape_of(declared.shape)
        except ValueError as error:
            self._wrong(place, str(error))
        return None

    def _censor(self, declared: PresenterSettings, place: str, *, checked: bool) -> Censor | None:
        """Return the censor. ``checked``: there is a schema, and every path has to lead to something in it."""
        if declared.redact is None:
            return None
        read = partial(self._path, declared if checked else None)
        paths = self._each(f"{place}.paths", declared.redact.paths, read)
        if not paths:
            return None
        stand_in: Any = declared.redact.censor
        if is_reference(stand_in):
            stand_in = self._loaded(stand_in, f"{place}.censor", most=1)
        return censor_of(paths, stand_in)

    def _path(self, declared: PresenterSettings | None, path: str, place: str) -> str | None:
        try:
            steps = segments(path)
        except PathInvalid as error:
            self._wrong(place, str(error))
            return None
        unknown = None
        if declared is not None and declared.shape is not None:
            unknown = unknown_name(steps, as_json_schema(declared.shape))
        elif declared is not None and declared.json_schema is not None:
            unknown = unknown_name(steps, declared.json_schema)
        if unknown is not None:
            # Whoever misspells it believes that it is hidden.
            self._wrong(place, f"{path}: {unknown}.")
        return path

    # --- what is said beside it -------------------------------------------------------------------------------

    def _each(
        self, place: str, entries: Iterable[Any], read: Callable[[Any, str], Entry | None]
    ) -> tuple[Entry, ...]:
        results = [read(entry, f"{place}[{at}]") for at, entry in enumerate(entries)]
        return tuple(entry for entry in results if entry is not None)

    def _rule(self, entry: str, place: str) -> str | Says | None:
        return self._loaded(entry, place) if is_reference(entry) else entry

    def _suggest(self, entry: SuggestionSettings | str, place: str) -> Suggest | Says | None:
        if isinstance(entry, str):
            return self._loaded(entry, place)
        return Suggest(Suggestion(entry.tool, entry.reason), self._condition(entry.when, f"{place}.when"))

    def _condition(self, text: str | None, place: str) -> Condition | None:
        try:
            return None if text is None else compile_condition(text)
        except ConditionInvalid as error:
            self._wrong(place, str(error))
            return None

    # --- code -------------------------------------------------------------------------------------------------

    def _loaded(self, reference: str, place: str, most: int = 2) -> Says | None:
        """Return the function, called with the first of ``most`` arguments that it takes."""
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
    """Return the check without its problems at censored values: data of embedded presenters is censored already."""

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

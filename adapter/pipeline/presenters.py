"""Presenters, made of their declarations in the settings, whose problems are reported at once; and the stage that
presents a tool's data: a success is written anew from the data that the caller may see.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce, wraps
from operator import getitem
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, InThread, PlannedCall
from adapter.pipeline.failures import CallRefused, Outcome, StageFailed, ToolRejected
from adapter.rules.access.redacted_values import Censor, Censored, PathInvalid, censor_of, segments
from adapter.rules.calls.conditions import Condition, ConditionInvalid, compile_condition
from adapter.rules.presenters.presenters import (
    SELECT,
    BlockSources,
    Embed,
    Presented,
    Presenter,
    PresenterFailed,
    Says,
    SentData,
    Suggest,
)
from adapter.rules.presenters.shapes import (
    Check,
    Shape,
    StepsLeft,
    json_shape,
    shape_of,
    unknown_name,
)
from adapter.rules.results.blocks import Suggestion
from adapter.rules.results.outcomes import NOTHING, payload, text_block
from adapter.rules.results.refusals import misshapen, public_line
from adapter.rules.results.short_json import Attachments, attachments
from adapter.rules.schema.cost import STEPS, OutOfSteps
from adapter.settings.pipeline import PresenterSettings, SuggestionSettings

Load = Callable[[str], Callable[..., Any]]
"""The text of a reference, to the function. Whatever it raises is a problem at its place."""
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
            censor=self._censor(declared, f"{place}.redact", shape),
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

    def _censor(self, declared: PresenterSettings, place: str, shape: Shape | None) -> Censor | None:
        """Return the censor. Where there is a shape, every path has to lead to something in it."""
        if declared.redact is None:
            return None
        paths = self._each(f"{place}.paths", declared.redact.paths, partial(self._path, shape))
        if not paths:
            return None
        stand_in: Any = declared.redact.censor
        if is_reference(stand_in):
            stand_in = self._loaded(stand_in, f"{place}.censor", most=1)
        return censor_of(paths, stand_in)

    def _path(self, shape: Shape | None, path: str, place: str) -> str | None:
        try:
            steps = segments(path)
        except PathInvalid as error:
            self._wrong(place, str(error))
            return None
        if shape is not None and (unknown := unknown_name(steps, shape.schema)) is not None:
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
            function = self._load(reference)
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


AT_ONCE = 256 * 1024
"""Characters of text that are presented on the event loop, in some milliseconds; more goes to a thread."""

STEPS_AT_ONCE = 5_000
"""Steps of checking it against a JSON Schema that are taken on the event loop, some milliseconds too."""

FAILED = "The tool failed. Its error message is withheld."

_WARNING = "<tool_error"
_ASKING = ("inputRequests", "requestState")
_DATA = re.compile(r"[{\[<]")


@dataclass(frozen=True, slots=True)
class PresenterStage:
    """``structured``: the data is the result's structured content too, as the clients of an upstream's tool expect.
    ``in_thread`` runs what may take long, and the user's code among it.

    Where the presenter redacts, nothing of the tool's own result remains but what was presented: neither content nor
    ``_meta``. Files that the adapter keeps are still linked. Without redaction members beside the content stay.
    ``max_steps`` is what checking the data against JSON Schemas may take.

    Of an upstream's failure, to which no path of a redaction applies, remains the sentence: the first line of each
    text up to where data begins, read as an exception's is. A task would hand the data out elsewhere, so there is none.
    """

    tool: str
    presenter: Presenter
    log: FilteringBoundLogger = field(repr=False)
    structured: bool = field(kw_only=True)
    max_steps: int = field(default=STEPS, kw_only=True)
    in_thread: InThread = field(default=asyncio.to_thread, repr=False, kw_only=True)
    _calls_code: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_calls_code", self.presenter.calls_code)

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Whatever goes wrong here, the data does not leave."""
        guards = self.presenter.redacts and self.structured
        try:
            outcome = await forward(call)
        except ToolRejected as rejected:
            if not guards:
                raise
            raise CallRefused(rejected.code, _sentence(str(rejected))) from None
        if guards and not outcome.succeeded and not outcome.final:
            return self._withheld(outcome)
        if not outcome.shapable or self._warns(outcome):
            return outcome
        call.time.at = "presenter"
        try:
            if not self._calls_code and _weight(outcome) <= AT_ONCE:
                try:
                    return self._presented(outcome, call, STEPS_AT_ONCE)
                except OutOfSteps:
                    pass
            # Others' calls shall not wait for so much, or for code that never ends.
            presented: Outcome = await self.in_thread(partial(self._presented, outcome, call, self.max_steps))
            return presented
        except OutOfSteps:
            sentence = (
                f"[{self.presenter.name} Presenter] Checking the data needs more than {self.max_steps} steps."
            )
            raise self._failed(call, sentence) from None
        except PresenterFailed as error:
            raise self._failed(call, str(error)) from None
        except (Exception, SystemExit):
            # A sentence of its own, as the exception's may tell something of the data.
            sentence = f"[{self.presenter.name} Presenter] The data could not be presented."
            raise self._failed(call, sentence) from None

    def _warns(self, outcome: Outcome) -> bool:
        """Tell whether the tool's code gave a warning instead of data; the code wrote the warning for its caller."""
        if self.structured or outcome.data is not NOTHING:
            return False
        content = outcome.result.get("content")
        return isinstance(content, list) and [
            isinstance(block, Mapping) and str(block.get("text")).startswith(_WARNING) for block in content
        ] == [True]

    def _presented(self, outcome: Outcome, call: PlannedCall, steps: int) -> Outcome:
        parts = attachments(outcome.result)
        data = self._data(outcome, parts)
        presented = self.presenter.present(
            data, call.context, select=call.select, beside=outcome.blocks, steps=steps
        )
        return self._written(outcome, parts, presented)

    def _data(self, outcome: Outcome, parts: Attachments) -> Any:
        if outcome.data is not NOTHING:
            return outcome.payload
        data = payload({**outcome.result, "content": parts.data})
        if self.presenter.redacts and data and data is parts.data:
            # Texts, images, files: no path leads into them, so nobody can say what of them is to be kept back.
            raise PresenterFailed(
                f"[{self.presenter.name} Presenter] Validation failed:\n"
                '  - "(root)": Expected object, received content blocks'
            )
        return data

    def _written(self, outcome: Outcome, parts: Attachments, presented: Presented) -> Outcome:
        redacts = self.presenter.redacts
        result = presented.result(structured=self.structured)
        # A file that the adapter keeps is one more road for the data; its link is not.
        attached = parts.links if redacts else (*parts.links, *parts.files)
        base = replace(outcome, result=parts.members) if redacts else outcome
        return base.written(result).with_content([*result.content, *attached])

    def _withheld(self, outcome: Outcome) -> Outcome:
        """Return what remains of an upstream's answer that is not a success."""
        parts = attachments(outcome.result)
        if outcome.is_error:
            texts = [_sentence(text) for text in _texts(parts.data)] or [FAILED]
            content = [*map(text_block, texts), *parts.links]
            return Outcome({**parts.members, "content": content, "isError": True})
        if outcome.result.get("resultType") == "input_required":
            question = {name: outcome.result[name] for name in _ASKING if name in outcome.result}
            return Outcome({**parts.members, **question})
        sentence = f"[{self.presenter.name} Presenter] The tool's answer cannot be presented."
        raise StageFailed.worded("presenter", misshapen(sentence))

    def _failed(self, call: PlannedCall, sentence: str) -> StageFailed:
        log = self.log.bind(server=call.server, tool=self.tool)
        log.warning("a result could not be presented", why=sentence)
        log.debug("where the presenter failed", exc_info=True)
        return StageFailed.worded("presenter", misshapen(sentence))


def _texts(content: Any) -> list[str]:
    blocks = content if isinstance(content, list) else []
    texts = [
        block.get("text") for block in blocks if isinstance(block, Mapping) and block.get("type") == "text"
    ]
    return [text for text in texts if isinstance(text, str)]


def _weight(outcome: Outcome) -> int:
    """The amount of text to present, in characters."""
    content = outcome.result.get("content")
    return sum(map(len, _texts(content))) if isinstance(content, list) else 0


def _sentence(text: str) -> str:
    """The part of a failure's text that is a sentence rather than data."""
    return public_line(_DATA.split(text.strip(), 1)[0]) or FAILED


def definition_with_select(definition: Mapping[str, Any], presenter: Presenter) -> Mapping[str, Any]:
    """The tool's entry of ``tools/list`` with ``_select`` among its inputs; the same object where callers may not
    select, or where the inputs are none of an object.
    """
    select, schema = presenter.select_schema, definition.get("inputSchema")
    if select is None or not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return definition
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return definition
    return {**definition, "inputSchema": {**schema, "properties": {**properties, SELECT: select}}}

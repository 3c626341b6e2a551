"""The stage that presents a tool's data: a success is written anew from the data that the caller may see."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, InThread, PlannedCall
from adapter.pipeline.failures import CallRefused, Outcome, StageFailed, ToolRejected
from adapter.rules.presenters.presenters import SELECT, Presented, Presenter, PresenterFailed
from adapter.rules.results.outcomes import NOTHING, payload, text_block
from adapter.rules.results.refusals import misshapen, public_line
from adapter.rules.results.short_json import Attachments, attachments
from adapter.rules.schema.cost import STEPS, OutOfSteps

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
        raise StageFailed.worded("presenter", sentence, misshapen(sentence))

    def _failed(self, call: PlannedCall, sentence: str) -> StageFailed:
        log = self.log.bind(server=call.server, tool=self.tool)
        log.warning("a result could not be presented", why=sentence)
        log.debug("where the presenter failed", exc_info=True)
        return StageFailed.worded("presenter", sentence, misshapen(sentence))


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

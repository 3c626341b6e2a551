"""The stage that presents a tool's data: what a caller reads of a success is written anew from what it may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import StageFailed
from adapter.pipeline.outcome import Outcome
from adapter.rules.attachments import Attachments, attachments
from adapter.rules.outcomes import NOTHING, payload
from adapter.rules.presenters import SELECT, Presented, Presenter, PresenterFailed
from adapter.rules.refusals import misshapen

_WARNING = "<tool_error"


@dataclass(frozen=True, slots=True)
class Presenting:
    """``structured``: the data is the result's structured content too, as the clients of an upstream's tool expect.

    Where the presenter redacts, nothing of the tool's own result remains but what was presented: neither content nor
    ``_meta``. Files that the adapter keeps are still linked. Without redaction members beside the content stay.
    """

    tool: str
    presenter: Presenter
    log: FilteringBoundLogger = field(repr=False)
    structured: bool = field(kw_only=True)

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Whatever goes wrong here, the data does not leave."""
        outcome = await forward(call)
        if not outcome.shapable or self._warns(outcome):
            return outcome
        try:
            return self._presented(outcome, call)
        except PresenterFailed as error:
            self._tell(call, str(error))
            raise StageFailed.worded("presenter", str(error), error.result()) from None
        except (Exception, SystemExit):
            # A sentence of its own, as nobody knows what of the data the exception's would tell.
            sentence = f"[{self.presenter.name} Presenter] The data could not be presented."
            self._tell(call, sentence)
            raise StageFailed.worded("presenter", sentence, misshapen(sentence)) from None

    def _warns(self, outcome: Outcome) -> bool:
        """Whether the tool's code gave a warning instead of data: it wrote that for its caller."""
        if self.structured or outcome.data is not NOTHING:
            return False
        content = outcome.result.get("content")
        return isinstance(content, list) and [
            isinstance(block, Mapping) and str(block.get("text")).startswith(_WARNING) for block in content
        ] == [True]

    def _presented(self, outcome: Outcome, call: PlannedCall) -> Outcome:
        parts = attachments(outcome.result)
        data = self._data(outcome, parts)
        presented = self.presenter.present(data, call.context, select=call.select, beside=outcome.blocks)
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
        kept = replace(outcome, result=parts.members) if redacts else outcome
        return kept.written(result).with_content([*result.content, *attached])

    def _tell(self, call: PlannedCall, why: str) -> None:
        log = self.log.bind(server=call.server, tool=self.tool)
        log.warning("a result could not be presented", why=why)
        log.debug("where the presenter failed", exc_info=True)


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

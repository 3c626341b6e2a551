"""Plans of tools, compiled from what the settings say of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.app.pipeline_steps import Materials, ReadOnly, Steps
from adapter.app.user_code import Loading
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.plan import Listed, Resolving, Step, ToolPlan
from adapter.pipeline.presenter_stage import definition_with_select
from adapter.pipeline.state_sync_stage import definition_with_cache_control
from adapter.pipeline.validation_stage import Coercing, Validating
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.rules.presenters.presenters import Presenter
from adapter.rules.text.unicode import reading
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, fits
from adapter.settings.servers.stages import ToolStages

Schema = Callable[[PlannedCall], Awaitable[Mapping[str, Any] | None]]


@dataclass(slots=True)
class Known:
    """The facts about a call's tool in an upstream's list: its schema, whether it only reads, whether it is there."""

    schema: Schema
    read_only: ReadOnly
    listed: Listed


async def _unknown(_: PlannedCall) -> None:
    """The schema of a tool whose arguments nobody checks here."""


async def _not_known(_: PlannedCall) -> bool:
    return False


UNKNOWN = Known(_unknown, _not_known, _not_known)
"""Where there is no upstream to ask."""


@dataclass(slots=True)
class Planning:
    """Compiles the plan of any tool."""

    materials: Materials

    @property
    def loading(self) -> Loading:
        return self.materials.loading

    # --- hosted tools -----------------------------------------------------------------------------------------

    def hosted(
        self, entry: ServerSettings, tool: ToolSettings, inputs: DeclaredInputs, place: str
    ) -> ToolPlan:
        """The plan of a hosted tool, whose arguments are always checked. Problems are noted."""
        stages = entry.stages_of(tool)
        presenter = self.materials.presenter_of(stages)
        making = Steps(self.materials, entry, tool.name, stages, place)
        steps = [
            *making.before(serial=tool.destructive),
            *making.shaping(presenter, rows=tool.rows),
            Step(
                7,
                "validate",
                f"{len(inputs.each)} inputs, strictly",
                Coercing(
                    tool.name,
                    inputs,
                    selects=_selects(presenter),
                    max_steps=self.materials.settings.validation.max_steps,
                    in_thread=self.loading.in_thread,
                ),
            ),
            *making.middleware(),
        ]
        return making.plan("script" if tool.handler is not None else "statement", steps)

    def definition(
        self, entry: ServerSettings, tool: ToolSettings, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """A hosted tool's entry of ``tools/list`` with what its stages add."""
        return self._decorated(entry, entry.stages_of(tool), definition)

    # --- tools of upstreams -----------------------------------------------------------------------------------

    def concerns(self, entry: ServerSettings) -> bool:
        """Tell whether any tool of an upstream may have a plan, or a description that its server did not give."""
        sync = self.materials.sync
        said = entry.stages or sync.policies or sync.default is not None
        return entry.upstream.transport != "hosted" and bool(said)

    def check(self, entry: ServerSettings, place: str) -> None:
        """Compile what every glob says once, so that what is wrong with it is known at start."""
        for glob, stages in entry.stages.items():
            where = f"{place}.stages.{glob}"
            if stages.limits.timeout is not None:
                with self.loading.judging(f"{where}.limits.timeout", ValueError):
                    raise ValueError(
                        "is for hosted tools; tool_defaults.tool_call_timeout_seconds is for others: the stages "
                        "around them have so long, and the upstream may be silent for so long"
                    )
            self._proxied(entry, glob, stages, UNKNOWN, where)

    def proxied(self, entry: ServerSettings, tool: str, known: Known) -> ToolPlan | None:
        """The plan of an upstream's tool; None for one that nothing is said of."""
        stages = entry.stages_for(tool)
        doubtful = _doubtful(entry, tool)
        if not stages.said and not doubtful and self.materials.sync.policy_for(entry.id, tool) is None:
            return None
        return self._proxied(entry, tool, stages, known, "", doubtful=doubtful)

    def decorate(self, entry: ServerSettings, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """A tool's entry of an upstream's list with what its stages add; the same object where that is nothing."""
        return self._decorated(entry, entry.stages_for(str(definition["name"])), definition)

    def _proxied(
        self,
        entry: ServerSettings,
        tool: str,
        stages: ToolStages,
        known: Known,
        place: str,
        *,
        doubtful: bool = False,
    ) -> ToolPlan:
        presenter = self.materials.presenter_of(stages)
        making = Steps(self.materials, entry, tool, stages, place)
        steps = [
            *([Step(1, "resolve", "by its very name", Resolving(tool, known.listed))] if doubtful else ()),
            *making.before(serial=False),
            *making.shaping(presenter, rows=False),
        ]
        if stages.validated or _selects(presenter):
            schema = known.schema if stages.validated else _unknown
            detail = "by the upstream's schema, strictly" if stages.validated else "takes _select"
            run = Validating(tool, schema, self.materials.checks, selects=_selects(presenter))
            steps.append(Step(7, "validate", detail, run))
        steps += making.middleware()
        if _keeps(entry, stages):
            steps.append(making.caching(known.read_only))
        return making.plan("proxied", steps)

    # --- both -------------------------------------------------------------------------------------------------

    def _decorated(
        self, entry: ServerSettings, stages: ToolStages, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        presenter = self.materials.presenter_of(stages)
        if presenter is not None or stages.mappers.output is not None:
            # What leaves is another shape than the tool promises, and clients refuse what breaks a promise.
            definition = {key: value for key, value in definition.items() if key != "outputSchema"}
        if presenter is not None:
            definition = definition_with_select(definition, presenter)
        sync = self.materials.sync_of(str(definition["name"]), stages)
        return definition_with_cache_control(definition, sync, entry.id)


def _selects(presenter: Presenter | None) -> bool:
    return presenter is not None and presenter.select_schema is not None


def _keeps(entry: ServerSettings, stages: ToolStages) -> bool:
    """Tell whether answers of an upstream's tool are kept: only of the tools that the settings name."""
    said = stages.cache
    return bool(said.said) and (entry.tools.cache.enabled if said.enabled is None else said.enabled)


def _doubtful(entry: ServerSettings, tool: str) -> bool:
    """Tell whether other stages are set for a name that reads like this one, for example in another case."""
    read = reading(tool)
    return any(fits(tool, glob) != fits(read, reading(glob)) for glob in entry.stages)

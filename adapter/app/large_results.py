"""The stages of tools whose large results become artifacts, and the tool that reads artifacts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from adapter.app.file_keeping import KeptFiles
from adapter.files.port import CaptureLimit
from adapter.relay.files.artifact_capture import CaptureRule, ProducerRule
from adapter.relay.files.large_results import (
    KnownCalls,
    LargeResultRule,
    LargeResults,
    LargeResultStage,
    PartKeeper,
    TaskTools,
)
from adapter.relay.files.read_artifact_tool import ABOVE, LARGEST_ANSWER, SMALLEST_ANSWER, ReadRule
from adapter.relay.stages import Call
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.files.locators import Locator
from adapter.rules.results.large_results import Terms
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings

KEPT_STAGES = 1024
"""Tools of one server whose stage is kept; names come from clients."""

KEPT_TASKS = 10_000
"""Tasks of one server whose tool is remembered; the result of another one is that of any tool."""


def reading_rule(settings: Settings, entry: ServerSettings) -> ReadRule | None:
    """The rule for reading artifacts of a server; None where none of its tools has any."""
    writes = any(each.edits if each.type == "upload_consumer" else each.persist for each in entry.adapters)
    if not settings.artifacts.enabled or not (writes or entry.shortens):
        return None
    declared = (*entry.stages.values(), *entry.tools.define)
    most = min((each.large_results.above for each in declared if each.large_results), default=ABOVE)
    rule = ReadRule(entry.id, settings.artifacts.uri_scheme)
    egress = entry.stages_for(rule.tool_name).limits.egress
    # What leaves cut would be lost, as the answer says how to go on behind it.
    least = most if egress is None else max(SMALLEST_ANSWER, egress)
    return rule._replace(most=min(most, least, LARGEST_ANSWER))


def shortening(
    files: KeptFiles,
    entry: ServerSettings,
    offers: Callable[[Call], Awaitable[Offered]] | None,
    limit: CaptureLimit,
    *,
    exposed: bool,
) -> LargeResults:
    """The stages of one server's tools; ``offers`` gives their definitions. What is kept has at most ``limit``."""
    hosted = {tool.name: tool for tool in entry.tools.define}
    known, tasks = KnownCalls(files.sessions.sessions.row, offers), TaskTools(KEPT_TASKS)
    links = files.links if files.settings.core.allow_artifacts_download else None
    scheme = files.settings.artifacts.uri_scheme

    def stage_of(tool: str) -> LargeResultStage | None:
        stages = entry.stages_of(hosted[tool]) if tool in hosted else entry.stages_for(tool)
        section = stages.large_results
        if section is None:
            return None
        terms = Terms(section.above, section.preview, f"{entry.id}_read_artifact")
        rule = LargeResultRule(terms, section.hosts, stages.limits.egress)
        kept = ProducerRule(
            entry.id, tool, None, Locator("none"), limit=limit, exposed=exposed, scheme=scheme
        )
        keeper = PartKeeper(
            CaptureRule(files.registry, files.files, kept), links, files.sessions.notifications
        )
        return LargeResultStage(tool, rule, keeper, known, tasks, files.base.log)

    return LargeResults(lru_cache(KEPT_STAGES)(stage_of), tasks)

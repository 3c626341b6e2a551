"""``mcp-adapter plan``: the stages of a tool's calls, in the order of ``pipeline/order.py``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from adapter.app.access.rules import described
from adapter.app.hosted import HostedTools
from adapter.app.pipeline import UNKNOWN
from adapter.app.tool_plans import compiled
from adapter.app.tools import locks
from adapter.commands.command_parser import load_settings, servers_named
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import ToolPlan
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import SchemaInvalid, SchemaTooLarge
from adapter.rules.text.events import shortened
from adapter.rules.tools.catalogue import Catalogue
from adapter.settings.root import Settings
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, fits
from adapter.settings.servers.stages import ToolStages
from adapter.wire.envelope import parse

FOUND, UNKNOWN_NAME = 0, 1


class Line(NamedTuple):
    """One stage as it is shown."""

    slot: Slot
    detail: str


class ShownPlan(NamedTuple):
    """The stages of one tool, in running order. ``timeout`` is that of all together in seconds, None without one."""

    server: str
    tool: str
    kind: str
    timeout: float | None
    lines: Sequence[Line]

    def print(self) -> None:
        """Print the plan as text for a terminal."""
        within = "" if self.timeout is None else f", {self.timeout:g} s in all"
        print(f"{self.server} {self.tool} ({self.kind}{within})")
        for line in self.lines:
            print(f"  {line.slot.number:>2}  {line.slot.label:<16}  {line.detail}".rstrip())
        print()

    def as_data(self) -> dict[str, Any]:
        """The JSON for scripts."""
        stages = [
            {"slot": line.slot.number, "stage": line.slot.label, "detail": line.detail} for line in self.lines
        ]
        return {
            "server": self.server,
            "tool": self.tool,
            "kind": self.kind,
            "timeout_seconds": self.timeout,
            "stages": stages,
        }


def run(arguments: argparse.Namespace) -> int:
    """Print the plan of one tool, or of every tool in the settings. The exit status is 1 for an unknown tool.

    Raises SettingsError, also for an unknown server.
    """
    settings, server, tool = load_settings(arguments), arguments.server, arguments.tool
    (entry,) = servers_named(settings, server)
    compilation = compiled(settings)
    locked = locks(settings).get(server)
    try:
        names = _names(entry) if tool is None else [tool]
        hosted = entry.upstream.kind.needs is None
        if tool is not None and hosted and compilation.tool(server, tool) is None:
            print(f"mcp-adapter: {server} has no tool {tool}", file=sys.stderr)
            return UNKNOWN_NAME
        shown_plans = [_shown_plan(settings, entry, name, compilation, locked) for name in names]
    finally:
        compilation.loading.close()
    if arguments.json:
        print(json.dumps([plan.as_data() for plan in shown_plans], ensure_ascii=False, indent=2))
        return FOUND
    for plan in shown_plans:
        plan.print()
    if tool is None and not hosted:
        print("Any other tool is forwarded byte for byte.")
    return FOUND


def _names(entry: ServerSettings) -> list[str]:
    """Return the tools of a hosted server; of an upstream the tools and globs that the settings name."""
    if entry.upstream.kind.needs is None:
        return [tool.name for tool in entry.tools.define]
    named = [tool for adapter in entry.adapters for tool in adapter.tools]
    return list(dict.fromkeys((*named, *entry.stages)))


def _shown_plan(
    settings: Settings, entry: ServerSettings, name: str, compilation: HostedTools, locked: Catalogue | None
) -> ShownPlan:
    hosted = compilation.tool(entry.id, name)
    plan = compilation.planning.proxied(entry, name, UNKNOWN) if hosted is None else hosted.plan
    caching = None if hosted is None else hosted.kept
    lines = [*_lines(settings, entry, name, plan, caching), *_unjudged(entry, name, locked)]
    return ShownPlan(
        entry.id,
        name,
        "proxied" if plan is None else plan.kind,
        None if hosted is None else hosted.timeout,
        sorted(lines, key=lambda line: line.slot.number),
    )


def _lines(
    settings: Settings, entry: ServerSettings, name: str, plan: ToolPlan | None, caching: str | None
) -> Iterator[Line]:
    """Yield all stages. ``caching`` says how results of a statement are kept; for an upstream's tool the plan does."""
    pinning = settings.pinning_for(entry)
    yield Line(Slot.ADMIT, f"bodies up to {settings.core.max_request_bytes} bytes, session and principal")
    yield Line(Slot.RESOLVE, f"unknown: {_unknown(settings, entry)}")
    for rule in described(entry):
        yield Line(Slot.PIN, f"access of {rule}")
    yield Line(Slot.PIN, pinning.mode)
    for step in plan.steps if plan is not None else ():
        if step.slot is not Slot.LARGE_RESULTS:
            yield Line(step.slot, step.detail)
    if caching is not None:
        yield Line(Slot.CACHE, caching)
    yield Line(Slot.EXECUTE, _execution(entry, name))
    stages = _stages(entry, name)
    large, most = stages.large_results, stages.limits.egress
    if large is not None:
        less = ", for some hosts less," if large.hosts else ""
        yield Line(Slot.LARGE_RESULTS, f"results above {large.above} bytes{less} become artifacts")
    errors = "" if plan is None else f"failures as {plan.errors.mode}, exceptions as {plan.errors.expose}"
    egress = "" if plan is None or most is None else f", results up to {most} bytes"
    yield Line(Slot.FINISH, errors + egress or "the upstream's bytes")


def _stages(entry: ServerSettings, name: str) -> ToolStages:
    hosted = next((tool for tool in entry.tools.define if tool.name == name), None)
    return entry.stages_for(name) if hosted is None else entry.stages_of(hosted)


def _unjudged(entry: ServerSettings, name: str, locked: Catalogue | None) -> Iterator[Line]:
    """Yield the patterns of locked tools that validation passes over, as they are not linear."""
    for tool, pinned in {} if locked is None else locked.tools.items():
        schema = parse(pinned.definition).get("inputSchema")
        if fits(tool, name) and entry.stages_for(tool).validated and isinstance(schema, dict):
            yield from (Line(Slot.VALIDATE, f"{tool}: {sentence}") for sentence in _passed_over(schema))


def _passed_over(schema: dict[str, Any]) -> Iterator[str]:
    try:
        unjudged = compile_schema(schema).unjudged
    except (SchemaInvalid, SchemaTooLarge) as refused:
        yield f"refuses every call: {str(refused) or 'the schema is too large'}"
        return
    for pattern, why in unjudged.items():
        yield f"does not check the pattern {shortened(pattern, 100)!r}: {why}"


def _unknown(settings: Settings, entry: ServerSettings) -> str:
    if entry.upstream.kind.needs is None:
        return str(settings.core.errors.unknown_tool_code)
    return "the upstream's answer"


def _execution(entry: ServerSettings, name: str) -> str:
    tool = next((tool for tool in entry.tools.define if tool.name == name), None)
    if tool is not None:
        return _hosted(tool)
    given = [each for each in entry.consumers if name in each.tools]
    steps = [f"handles in {each.file_path_argument} become {each.delivery}" for each in given]
    steps.append("the upstream")
    steps += ["the files that it changed are captured" for each in given if each.edits]
    for producer in (each for each in entry.producers if name in each.tools):
        where = producer.output_path_argument or f"its result, by {producer.output_locator.mode}"
        steps.append(f"its file by {where} is captured")
    return ", then ".join(steps)


def _hosted(tool: ToolSettings) -> str:
    if tool.handler is not None:
        return f"{tool.handler}, {tool.runtime}"
    return f"a statement for {tool.use}"

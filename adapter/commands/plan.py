"""``mcp-adapter plan``: the stages that calls of a tool walk, in the order things happen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from adapter.app.pipeline import UNKNOWN
from adapter.app.tool_plans import Compiled, compiled
from adapter.app.tools import locks
from adapter.pipeline.plan import ToolPlan
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.documents import SchemaInvalid, SchemaTooLarge
from adapter.rules.text.events import shortened
from adapter.rules.text.patterns import why_not
from adapter.rules.tools.catalogue import Catalogue
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, fits
from adapter.wire.envelope import parse

FOUND, UNKNOWN_NAME = 0, 1


class Line(NamedTuple):
    """One stage as it is shown; ``number`` is its place in the documented order."""

    number: int
    name: str
    detail: str


def show_plans(settings: Settings, server: str, tool: str | None) -> int:
    """Print the plan of one tool, or of all that the settings speak of. The exit status: 1 for an unknown name.

    Raises SettingsError.
    """
    entry = next((each for each in settings.servers if each.id == server), None)
    if entry is None:
        known = ", ".join(each.id for each in settings.servers)
        print(
            f"mcp-adapter: there is no server {server}; the configured servers are: {known}", file=sys.stderr
        )
        return UNKNOWN_NAME
    made = compiled(settings)
    locked = locks(settings).get(server)
    try:
        names = _names(entry) if tool is None else [tool]
        if (
            tool is not None
            and entry.upstream.transport == "hosted"
            and tool not in made.hosting.plans[server]
        ):
            print(f"mcp-adapter: {server} has no tool {tool}", file=sys.stderr)
            return UNKNOWN_NAME
        for name in names:
            _print(settings, entry, name, made, locked)
        if tool is None and entry.upstream.transport != "hosted":
            print("Any other tool is forwarded byte for byte.")
    finally:
        made.loading.close()
    return FOUND


def _names(entry: ServerSettings) -> list[str]:
    """The tools of a hosted server; of an upstream's those that the settings name, and the globs."""
    if entry.upstream.transport == "hosted":
        return [tool.name for tool in entry.tools.define]
    named = [tool for adapter in entry.adapters for tool in adapter.tools]
    return list(dict.fromkeys((*named, *entry.stages)))


def _print(
    settings: Settings, entry: ServerSettings, name: str, made: Compiled, locked: Catalogue | None
) -> None:
    plan = (
        made.hosting.plans[entry.id][name]
        if entry.upstream.transport == "hosted"
        else made.planning.proxied(entry, name, UNKNOWN)
    )
    kind = "proxied" if plan is None else plan.kind
    seconds = made.hosting.timeouts.get(entry.id, {}).get(name)
    within = "" if seconds is None else f", {seconds:g} s in all"
    print(f"{entry.id} {name} ({kind}{within})")
    kept = made.hosting.kept.get(entry.id, {}).get(name)
    lines = [*_lines(settings, entry, name, plan, kept), *_unjudged(entry, name, locked)]
    for line in sorted(lines, key=_moment):
        print(f"  {line.number:>2}  {line.name:<16}  {line.detail}".rstrip())
    print()


def _moment(line: Line) -> float:
    """When a stage comes: pins are judged before anything of the plan is, as they say whether there is the tool."""
    return 1.5 if line.name == "pin" else line.number


def _lines(
    settings: Settings, entry: ServerSettings, name: str, plan: ToolPlan | None, kept: str | None
) -> Iterator[Line]:
    """``kept``: how results of a statement are kept, which belongs to its execution; an upstream's is in the plan."""
    pinning = settings.pinning_for(entry)
    yield Line(0, "admit", f"bodies up to {settings.core.max_request_bytes} bytes, session and principal")
    yield Line(1, "resolve", f"unknown: {_unknown(settings, entry)}")
    yield Line(4, "pin", pinning.mode)
    for step in plan.steps if plan is not None else ():
        yield Line(step.number, step.name, step.detail)
    if kept is not None:
        yield Line(9, "cache", kept)
    yield Line(9, "execute", _execution(entry, name))
    errors = "" if plan is None else f"failures as {plan.errors.mode}, exceptions as {plan.errors.expose}"
    egress = "" if plan is None or plan.egress is None else f", results up to {plan.egress} bytes"
    yield Line(13, "finish", errors + egress or "the upstream's bytes")


def _unjudged(entry: ServerSettings, name: str, locked: Catalogue | None) -> Iterator[Line]:
    """What validation passes over of the locked tools that a name or glob is for: patterns without words in RE2."""
    for tool, pinned in {} if locked is None else locked.tools.items():
        schema = parse(pinned.definition).get("inputSchema")
        if fits(tool, name) and entry.stages_for(tool).validated and isinstance(schema, dict):
            yield from (Line(7, "validate", f"{tool}: {sentence}") for sentence in _passed_over(schema))


def _passed_over(schema: dict[str, Any]) -> Iterator[str]:
    try:
        patterns = compile_schema(schema).patterns
    except (SchemaInvalid, SchemaTooLarge) as refused:
        yield f"refuses every call: {str(refused) or 'the schema is too large'}"
        return
    for pattern in patterns:
        if (why := why_not(pattern)) is not None:
            yield f"does not check the pattern {shortened(pattern, 100)!r}: {why}"


def _unknown(settings: Settings, entry: ServerSettings) -> str:
    if entry.upstream.transport == "hosted":
        return str(settings.core.errors.unknown_tool_code)
    return "the upstream's answer"


def _execution(entry: ServerSettings, name: str) -> str:
    tool = next((tool for tool in entry.tools.define if tool.name == name), None)
    if tool is not None:
        return _hosted(tool)
    adapters = [each for each in entry.adapters if name in each.tools]
    given = [each for each in adapters if isinstance(each, UploadConsumer)]
    made = [each for each in adapters if isinstance(each, ArtifactProducer)]
    steps = [f"handles in {each.file_path_argument} become {each.delivery}" for each in given]
    steps.append("the upstream")
    for producer in made:
        where = producer.output_path_argument or f"its result, by {producer.output_locator.mode}"
        steps.append(f"its file by {where} is captured")
    return ", then ".join(steps)


def _hosted(tool: ToolSettings) -> str:
    if tool.handler is not None:
        return f"{tool.handler}, {tool.runtime}"
    return f"a statement for {tool.use}"

"""From a file, the environment and flags to ``Settings``: flags win, then the environment, then the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from adapter.settings.consistency import inconsistencies
from adapter.settings.file.host_servers import ConvertedServers, host_servers
from adapter.settings.file.tool_folders import add_tools_of_folders
from adapter.settings.file.yaml_text import as_value, interpolated, read_yaml, with_policies
from adapter.settings.reference_page import nearest_key, without_tags
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError, spelled, traced

__all__ = ["SettingsError", "load"]

Location = tuple[str | int, ...]


def load(
    path: Path | None,
    *,
    overrides: Mapping[str, Any] = {},
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings that hold, with the tools of every ``tools.directory`` among those of ``define``.

    ``overrides`` has dotted keys (``core.port``, ``servers.0.id``) and wins over variables such as
    ``ADAPTER_CORE__PORT``, which win over the file. Raises SettingsError with a line for every problem.
    """
    tree = _placed(interpolated(_read(path), environ), path.parent) if path is not None else {}
    origins: dict[Location, str] = {}
    for layer, source in ((_variables(environ), "{}"), (_flags(overrides), "the command line")):
        for name, location, value in layer:
            _put(tree, location, value)
            origins[location] = source.format(name)
    base = Path() if path is None else path.parent
    files = add_tools_of_folders(tree, base, environ)
    try:
        tree = with_policies(tree, environ)
        retired = take_retired(tree)
        settings = _validated(tree, origins)
        if problems := list(inconsistencies(settings)):
            raise SettingsError(problems)
    except SettingsError as refused:
        raise SettingsError(traced(problem, files) for problem in refused.problems) from None
    return settings.found_in(base, files, retired)


def _validated(tree: Mapping[str, Any], origins: Mapping[Location, str]) -> Settings:
    try:
        return Settings.model_validate({str(key): value for key, value in tree.items() if value is not None})
    except ValidationError as refused:
        raise SettingsError(_problem(error, origins) for error in refused.errors()) from None


def _read(path: Path) -> dict[str, Any]:
    """The mapping in the file. Raises SettingsError; for servers as MCP clients configure them, it says what they are
    here.
    """
    tree = read_yaml(path)
    found = host_servers(tree)
    if found is None:
        return tree
    key, servers = found
    converted = ConvertedServers(servers)
    lines = [*converted.as_yaml().rstrip().split("\n")]
    lines += [f"# {note}" for note in converted.notes]
    lines += [f"# set {variable}: the secret in {place}" for variable, place in converted.variables.items()]
    shown = "\n".join(f"    {line}" for line in lines)
    sentence = "is the key of MCP clients. Write this, or let mcp-adapter init --from FILE write it:"
    raise SettingsError([Problem(key, f"{sentence}\n\n{shown}\n")])


def _placed(tree: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The tree with the paths in its servers, and that of its audit log, relative to ``directory``: version control
    keeps such files next to the settings file.
    """
    core = tree.get("core")
    audit = core.get("audit") if isinstance(core, dict) else None
    if isinstance(audit, dict):
        _place(audit, "file", directory.absolute())
    servers = tree.get("servers")
    for entry in servers if isinstance(servers, list) else ():
        if not isinstance(entry, dict):
            continue
        _place(entry, "tools_lock", directory)
        # A process that is started elsewhere would look for a relative path in its own working directory.
        upstream = entry.get("upstream")
        if isinstance(upstream, dict):
            _place(upstream, "cwd", directory.absolute())
            if "/" in str(upstream.get("command") or ""):
                _place(upstream, "command", directory.absolute())
            if isinstance(auth := upstream.get("auth"), dict):
                _place(auth, "private_key_file", directory)
    return tree


def _place(section: dict[str, Any], key: str, directory: Path) -> None:
    if isinstance(text := section.get(key), str) and text.strip():
        section[key] = str(directory / os.path.expanduser(text.strip()))  # noqa: PTH111 (of nobody, it stays)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Location, object]]:
    """The settings in variables: ``ADAPTER_CORE__PORT`` is ``core.port``. Variables that name no section are
    ignored.
    """
    for name, text in sorted(environ.items()):
        prefix, _, rest = name.partition("_")
        steps = rest.lower().split("__")
        if prefix.upper() == "ADAPTER" and steps[0] in Settings.model_fields:
            yield name, _steps(steps), as_value(text)


def _flags(overrides: Mapping[str, Any]) -> Iterator[tuple[str, Location, object]]:
    for name, value in overrides.items():
        yield name, _steps(name.split(".")), as_value(value) if isinstance(value, str) else value


def _steps(steps: list[str]) -> Location:
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _put(tree: Any, location: Location, value: object) -> None:
    """Sets one value in the tree, making sections on the way. Raises SettingsError where there is no way."""
    *way, last = location
    for depth, step in enumerate(way):
        tree = _member(tree, step, spelled(location[: depth + 1]), location[depth + 1])
    if isinstance(tree, list) and isinstance(last, int) and last <= len(tree):
        tree[last : last + 1] = [value]
    elif isinstance(tree, dict):
        tree[str(last)] = value
    else:
        raise SettingsError([Problem(spelled(location), "cannot be set: the key above it is not a section")])


def _member(tree: Any, step: str | int, path: str, following: str | int) -> Any:
    empty: Any = [] if isinstance(following, int) else {}
    if isinstance(tree, list) and isinstance(step, int) and step <= len(tree):
        if step == len(tree):
            tree.append(empty)
        return tree[step]
    if isinstance(tree, dict):
        if tree.get(str(step)) is None:
            tree[str(step)] = empty
        return tree[str(step)]
    raise SettingsError([Problem(path, "cannot be set: there is no such entry")])


_SENTENCES = {
    "missing": "is required",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a section with keys",
    "model_attributes_type": "must be a section with keys",
    "union_tag_not_found": "needs a type: upload_consumer or artifact_producer",
    "union_tag_invalid": "has an unknown type: it must be upload_consumer or artifact_producer",
}


def _problem(error: ErrorDetails, origins: Mapping[Location, str]) -> Problem:
    location = without_tags(error["loc"])
    origin = next(
        (origins[location[:end]] for end in range(len(location), 0, -1) if location[:end] in origins), None
    )
    path = spelled(location) + (f" (from {origin})" if origin else "")
    return Problem(path, _sentence(error, location))


def _sentence(error: ErrorDetails, location: Location) -> str:
    """Our own message if there is one, else pydantic's, which never quotes the value: it may be a secret."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return nearest_key(location)
    if kind == "literal_error":
        return f"must be {context['expected']}".replace("'", "")
    if kind == "value_error":
        return str(context["error"])
    return _SENTENCES.get(kind) or error["msg"][0].lower() + error["msg"][1:]


_ONE_LIMIT = "max_tool_description_chars is for descriptions inside schemas too"

RETIRED: Mapping[str, str] = {
    "core.audit.on_failure": "a call whose line cannot be written is refused",
    "core.cors.allow_credentials": "pages send tokens in headers, and no answer allows them cookies",
    "core.cors.allowed_headers": "a preflight answer allows the request headers that it is asked for",
    "core.cors.allowed_methods": "a preflight answer allows GET, POST, DELETE and OPTIONS",
    "core.tool_description_policy.max_schema_description_chars": _ONE_LIMIT,
    "core.upstream_ping.half_open_probe_allowance": "a half-open breaker allows two pings at once",
    "state_persistence.reconciliation": "a log line tells of files without a record, which are given to nobody",
    "state_persistence.redis.ping_seconds": "the connection is checked every 5 s",
    "storage.atomic_writes": "a file is written to a temporary one, synced and renamed",
    "telemetry.drop_on_queue_full": "spans are dropped while 5000 wait, and no call waits for a collector",
    "telemetry.emit_logs": "log lines are exported where OpenTelemetry's OTEL_LOGS_EXPORTER is otlp",
    "telemetry.export_interval_seconds": "OpenTelemetry's OTEL_METRIC_EXPORT_INTERVAL says how often, else each minute",
    "telemetry.export_timeout_seconds": "one export takes at most 10 s",
    "telemetry.flush_on_shutdown": "spans that wait are exported when the adapter stops",
    "telemetry.flush_on_terminate": "spans that wait are exported when the interpreter exits",
    "telemetry.insecure": "an endpoint with https:// has TLS, one with http:// has none",
    "telemetry.log_batch_export_timeout_millis": "one export takes at most 10 s",
    "telemetry.log_batch_max_export_batch_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_max_queue_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_schedule_delay_millis": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.logs_endpoint": "log lines go to telemetry.endpoint",
    "telemetry.max_queue_size": "at most 5000 spans wait for export",
    "telemetry.periodic_flush_seconds": "spans are exported every 5 s, and as soon as there are 256",
    "telemetry.queue_batch_size": "one export has at most 256 spans",
    "telemetry.service_name": "OpenTelemetry's OTEL_SERVICE_NAME names the service, else it is mcp-adapter",
    "telemetry.service_namespace": "OpenTelemetry's OTEL_RESOURCE_ATTRIBUTES names it",
    "telemetry.shutdown_drain_timeout_seconds": "the rest is exported within 10 s",
    "servers.[].tool_description_policy.max_schema_description_chars": _ONE_LIMIT,
    "servers.[].upstream.restart": "the pause between failed starts doubles from 1 s to 60 s",
    "servers.[].upstream_ping.half_open_probe_allowance": "a half-open breaker allows two pings at once",
}
"""The path of each, where ``[]`` stands for every entry of a list, and what holds whatever it says."""


def take_retired(tree: dict[str, Any]) -> list[Problem]:
    """Remove the retired keys from a file's values; return a caution for each that had a value."""
    return [
        Problem(spelled(location), f"has no effect: {holds}; remove it")
        for path, holds in RETIRED.items()
        for location, value in _taken(tree, path.split("."))
        if value is not None
    ]


def _taken(value: Any, steps: list[str]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    first, *rest = steps
    if first == "[]":
        inner: list[tuple[str | int, Any]] = [*enumerate(value)] if isinstance(value, list) else []
    elif not isinstance(value, dict) or first not in value:
        return
    elif not rest:
        yield (first,), value.pop(first)
        return
    else:
        inner = [(first, value[first])]
    for step, each in inner:
        for location, found in _taken(each, rest):
            yield (step, *location), found

"""``mcp-adapter init``: a settings file to begin with, or one with the servers of an MCP client."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.command_parser import failed
from adapter.commands.file_writing import refusal_to_write
from adapter.extras import typed_command
from adapter.rules.clients.client_file import without_comments
from adapter.rules.text.unicode import shown
from adapter.settings.file.host_servers import ConvertedServers, host_servers
from adapter.settings.reference_page import schema_text

WRITTEN, NOT_WRITTEN, UNREADABLE = 0, 1, 2

STANDARD = Path("-")
"""Stands for standard output, and as text for standard input."""

_MOST_BYTES = 16 * 1024**2

_HEAD = """\
# Settings of mcp-adapter. Try them with `mcp-adapter check`, use them with `mcp-adapter serve`.
# `mcp-adapter config reference` explains every key. Any text may hold ${VARIABLE} or ${VARIABLE:-default}; times are
# written 30s or 2m, sizes 10Mi or 5MB.

core:
  host: 127.0.0.1  # 0.0.0.0 opens the adapter to the network; enable auth first
  port: 8932
  allow_artifacts_download: true  # results link to files that tools wrote; a link is good for artifacts.ttl_seconds
  # auth:
  #   enabled: true
  #   token: ${MCP_ADAPTER_TOKEN}  # at least 16 characters: openssl rand -hex 32

storage:
  root: data  # uploads, artifacts and sessions; relative to the folder in which the adapter is started
"""

_SERVERS = """\
# Each server has its own address: http://127.0.0.1:8932/mcp/ID
servers:
  - id: example
    upstream:
      url: http://localhost:8931/mcp
      # static_headers: {Authorization: "Bearer ${EXAMPLE_TOKEN}"}
      # Or a program on this machine, in place of url:
      # transport: stdio
      # command: npx
      # args: [-y, "@modelcontextprotocol/server-filesystem", /tmp]
    # Tools that read or write files; docs/files.md
    # adapters:
    #   - {type: upload_consumer, tools: [read_document], file_path_argument: path}
    #   - {type: upload_consumer, tools: [edit_document], file_path_argument: path, edits: true}
    #   - {type: artifact_producer, tools: [take_screenshot], output_path_argument: filename}
"""


class SourceUnusable(Exception):
    """The configuration of a client cannot be used; ``str(error)`` is a sentence."""


def run(options: argparse.Namespace) -> int:
    """Write the settings file and print what to do next.

    Return the exit status: 0, 1 if a file exists or cannot be written, 2 for a source that cannot be used.
    """
    try:
        converted = None if options.source is None else ConvertedServers(_servers_in(options.source))
    except SourceUnusable as error:
        return failed(str(error), UNREADABLE)
    if converted is not None and not converted.entries:
        return failed(f"every server in {options.source} is disabled", UNREADABLE)
    schema = options.file.with_suffix(".schema.json") if options.schema and options.file != STANDARD else None
    text = settings_text(converted, source=options.source, schema=schema)
    if options.file == STANDARD:
        print(text, end="")
        _tell(converted, sys.stderr)
        return WRITTEN
    files = {} if schema is None else {schema: schema_text()}
    for path, content in {**files, options.file: text}.items():
        # The schema is nobody's own.
        refusal = refusal_to_write(path, content.encode(), force=options.force or path == schema)
        if refusal is not None:
            return failed(refusal, NOT_WRITTEN)
    print(f"{options.file} is written.")
    _tell(converted, sys.stdout)
    named = "" if options.file == Path("config.yaml") else f" --config {options.file}"
    own = typed_command()
    first = "write your server into it, then " if converted is None else ""
    print(f"Next: {first}{own} check{named}, and {own} serve{named}")
    return WRITTEN


def settings_text(
    converted: ConvertedServers | None, *, source: str | None = None, schema: Path | None = None
) -> str:
    """The text of a settings file with these servers, or with an example; ``schema`` is for editors."""
    hint = "" if schema is None else f"# yaml-language-server: $schema=./{schema.name}\n"
    if converted is None:
        return f"{hint}{_HEAD}\n{_SERVERS}"
    lines = ["# Each server has its own address: http://127.0.0.1:8932/mcp/ID"]
    if converted.variables:
        lines.append(f"# Set these variables before the start; their values are in {_name_of(source)}:")
        lines += [f"#   {variable}  ({place})" for variable, place in converted.variables.items()]
    return f"{hint}{_HEAD}\n" + "\n".join(lines) + f"\n{converted.as_yaml()}"


def _name_of(source: str | None) -> str:
    return "its configuration" if source in (None, "-") else str(source)


def _tell(converted: ConvertedServers | None, stream: Any) -> None:
    """Print what has become of the servers, and what is left to do."""
    if converted is None:
        return
    for entry in converted.entries:
        print(f"  {entry['id']}: http://127.0.0.1:8932/mcp/{entry['id']}", file=stream)
    for variable, place in converted.variables.items():
        print(f"  set {variable} before the start: a secret ({place}) was left out of the file", file=stream)
    for note in converted.notes:
        print(f"  {note}", file=stream)


# --- the configuration of a client ------------------------------------------------------------------------------


def _servers_in(source: str) -> Mapping[str, Any]:
    """The servers by name. Raises SourceUnusable."""
    tree = _parsed(_read(source), source)
    found = host_servers(tree) if isinstance(tree, dict) else None
    if found is None:
        raise SourceUnusable(
            f"{source} has no servers: they stand under mcpServers (or servers), each with a command or a url"
        )
    return found[1]


def _read(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(source).expanduser().open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise SourceUnusable(f"{source} is larger than 16 MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SourceUnusable(f"{source} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SourceUnusable(f"{source} is not UTF-8 text") from None


def _parsed(text: str, source: str) -> object:
    """The values of JSON, which may have comments and trailing commas, of TOML (``.toml``), or of YAML."""
    try:
        if source.endswith(".toml"):
            return tomllib.loads(text)
        if source.endswith((".yaml", ".yml")):
            return yaml.safe_load(text)
        return json.loads(without_comments(text.encode()))
    except json.JSONDecodeError as error:
        raise SourceUnusable(f"{source} cannot be parsed: line {error.lineno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise SourceUnusable(f"{source} cannot be parsed: {shown(str(error), 200)}") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f": line {error.problem_mark.line + 1}"
        raise SourceUnusable(f"{source} cannot be parsed{line}") from None
    except (ValueError, yaml.YAMLError, RecursionError):
        raise SourceUnusable(f"{source} cannot be parsed") from None

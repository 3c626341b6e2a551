"""The command line: argv to settings to what was asked for."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adapter.commands.command_parser import CommandParser
from adapter.version import VERSION

if TYPE_CHECKING:
    from adapter.settings.file.reading import ReadSettings
    from adapter.settings.root import Settings

OK, BAD_SETTINGS = 0, 2

# Each command imports what it runs when it runs: --version, --help and wrong arguments are answered without the
# settings, and the commands that only read settings without servers and clients.


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command of the arguments and return its exit status: 2 for settings that cannot be used.

    Wrong arguments raise SystemExit(2), as argparse does.
    """
    arguments = _parser().parse_args(argv)
    arguments.argv = list(sys.argv[1:] if argv is None else argv)
    from adapter.settings.section import SettingsError

    try:
        return int(arguments.action(arguments))
    except SettingsError as refused:
        print(f"mcp-adapter: the settings cannot be used:\n{refused}", file=sys.stderr)
        return BAD_SETTINGS


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="mcp-adapter", description="Reverse proxy for MCP servers that also moves files."
    )
    parser.add_argument("--version", action="version", version=f"mcp-adapter {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the adapter")
    _add_settings_flags(serve)
    serve.add_argument(
        "--watch",
        action="store_true",
        help="restart when the settings file or a script below its folder changes",
    )
    serve.set_defaults(action=_serve)

    check = commands.add_parser(
        "check", help="print problems of the settings, or all settings with secrets masked"
    )
    _add_settings_flags(check)
    check.set_defaults(action=_check)

    plan = commands.add_parser("plan", help="show the stages of a tool's calls")
    plan.add_argument("server", metavar="SERVER", help="id of the server")
    plan.add_argument(
        "tool", nargs="?", metavar="TOOL", help="name of the tool (default: all configured tools)"
    )
    _add_settings_flags(plan)
    plan.set_defaults(action=_plan)

    config = commands.add_parser("config", help="show documentation of the settings file")
    topics = config.add_subparsers(title="topics", required=True, metavar="TOPIC")
    page = topics.add_parser("reference", help="print every setting as a Markdown page")
    page.set_defaults(action=_reference)

    _add_pins(commands)

    _add_doctor(commands)
    _add_transfers(commands)
    _add_install(commands)

    demo = commands.add_parser("demo", help="run the adapter in front of a demo server on loopback")
    demo.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    demo.add_argument("--port", type=int, default=8932, help="port to bind (default: %(default)s)")
    demo.set_defaults(action=_demo)
    return parser


def _add_pins(commands: argparse._SubParsersAction[CommandParser]) -> None:
    pins = commands.add_parser("pins", help="review changed tool definitions")
    topics = pins.add_subparsers(title="topics", required=True, metavar="TOPIC")
    for topic, text in (
        ("list", "show the baseline of each server's sessions, what they first saw, and the current tools"),
        ("diff", "show changes side by side; exits with 1 if there are any"),
        (
            "check",
            "the same for CI: compare only with lock files and accepted tools; exits with 2 if something "
            "cannot be read",
        ),
        ("accept", "make the current tools the baseline of every session"),
        ("export", "write the current tools to lock files"),
    ):
        command = topics.add_parser(topic, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
        _add_settings_flags(command)
        command.add_argument(
            "--seen",
            action="store_true",
            help="use the tools that the adapter saw last, without contacting a server",
        )
        command.set_defaults(action=_pins, topic=topic, color="never", yes=False, output=None)
        if topic in ("diff", "check", "accept"):
            command.add_argument(
                "--color",
                choices=("auto", "always", "never"),
                default="auto",
                help="when to use color (default: auto, which means on a terminal)",
            )
        if topic == "accept":
            command.add_argument("--yes", action="store_true", help="accept without asking")
        if topic == "export":
            command.add_argument(
                "--output",
                type=Path,
                metavar="FILE",
                help="file to write (default: each server's tools_lock, or tools.lock next to the "
                "settings file); - prints to standard output",
            )


def _add_doctor(commands: argparse._SubParsersAction[CommandParser]) -> None:
    doctor = commands.add_parser(
        "doctor", help="look at the adapter, its machine and its servers as a client would meet them"
    )
    doctor.add_argument("--server", metavar="ID", help="only this server")
    doctor.add_argument("--tool", help="move a file through this tool of the server, there and back")
    doctor.add_argument(
        "--arguments", default="{}", metavar="JSON", help="what else the tool needs, as an object"
    )
    doctor.add_argument("--file", type=Path, help="the file to move (default: a text of one line)")
    doctor.add_argument(
        "--token", help="the adapter's token (default: MCP_ADAPTER_TOKEN, or that of the settings)"
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    _add_settings_flags(doctor)
    doctor.set_defaults(action=_doctor)


def _add_transfers(commands: argparse._SubParsersAction[CommandParser]) -> None:
    upload = commands.add_parser("upload", help="upload files for a server's tools, and print their handles")
    upload.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file to upload")
    upload.add_argument(
        "--url",
        required=True,
        help="address of the server behind the adapter, or the upload_url that its tool gave out",
    )
    upload.add_argument("--json", action="store_true", help="print names, sizes and digests too, as JSON")
    upload.set_defaults(action=_upload)

    download = commands.add_parser(
        "download", help="download what a tool wrote, and print the path of the file"
    )
    download.add_argument(
        "handles", nargs="+", metavar="HANDLE", help="an artifact:// URI, or the download URL of a result"
    )
    download.add_argument(
        "--url", help="address of the server behind the adapter; an artifact:// URI needs it"
    )
    download.add_argument(
        "--output",
        "-o",
        metavar="PATH",
        help="file or folder to write to (default: here, under the file's own name); - prints the content",
    )
    download.add_argument("--force", action="store_true", help="overwrite files that exist")
    download.set_defaults(action=_download)
    for command in (upload, download):
        command.add_argument(
            "--token", help="the adapter's token (default: MCP_ADAPTER_TOKEN of the environment)"
        )


def _add_install(commands: argparse._SubParsersAction[CommandParser]) -> None:
    install = commands.add_parser(
        "install",
        help="tell an MCP client of the servers, in the client's own file, after showing the change",
    )
    install.add_argument(
        "client",
        choices=("claude-code", "claude-desktop", "cursor", "vscode", "codex", "goose", "gemini-cli"),
        metavar="CLIENT",
        help="claude-code, claude-desktop, cursor, vscode, codex, goose or gemini-cli",
    )
    install.add_argument(
        "--url", help="address of one server behind the adapter (default: those of the settings)"
    )
    install.add_argument(
        "--name", help="name of the server at --url in the client (default: the end of the URL)"
    )
    install.add_argument("--server", metavar="ID", help="only this server of the settings")
    install.add_argument(
        "--token-variable",
        metavar="VAR",
        help="environment variable that the client reads the adapter's token from (default: MCP_ADAPTER_TOKEN "
        "where the settings ask for a token, none for --url)",
    )
    install.add_argument("--file", type=Path, help="the client's file, if it is not in its usual place")
    install.add_argument("--print", action="store_true", dest="only_print", help="only show the change")
    install.add_argument("--yes", action="store_true", help="write without asking")
    _add_settings_flags(install)
    install.set_defaults(action=_install)


def _add_settings_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="the settings file")
    command.add_argument("--host", metavar="H", help="overrides core.host")
    command.add_argument("--port", metavar="P", help="overrides core.port")
    command.add_argument("--log-level", metavar="L", help="overrides core.log_level")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="overrides any setting, for example --set sessions.max_active=100; may be repeated",
    )


def _loaded(arguments: argparse.Namespace) -> Settings:
    from adapter.settings.file.load import load
    from adapter.settings.section import Problem, SettingsError

    overrides: dict[str, str] = {}
    for text in arguments.settings:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise SettingsError([Problem("--set", f"write KEY=VALUE; {key or 'this'} has no value")])
        overrides[key.strip()] = value
    for key, value in (
        ("host", arguments.host),
        ("port", arguments.port),
        ("log_level", arguments.log_level),
    ):
        if value is not None:
            overrides[f"core.{key}"] = value
    return load(arguments.config, overrides=overrides)


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.watch:
        from adapter.commands.watch import watch

        same = [each for each in arguments.argv if each != "--watch"]
        return watch(arguments.config, same, lambda: _checked(arguments))
    # Code is no garbage, and the collector would look through it a hundred times: 5 % of the start. `serve` enables it.
    gc.disable()
    from adapter.settings.file.reading import SettingsReading

    reading = SettingsReading(lambda: _read(arguments))
    from adapter.app import serve

    return serve(*reading.result())


def _read(arguments: argparse.Namespace) -> ReadSettings:
    """The settings for a process that serves, with their warnings."""
    settings = _loaded(arguments)
    from adapter.settings.consistency import cautions
    from adapter.settings.file.reading import ReadSettings

    return ReadSettings(settings, tuple(cautions(settings)))


def _checked(arguments: argparse.Namespace) -> Settings:
    """The settings, after everything that they name has been compiled and loaded as far as this machine can."""
    settings = _loaded(arguments)
    # Statements, scripts and plans are judged by those who run them.
    from adapter.app.tool_plans import compiled
    from adapter.commands.database_check import inspect

    stages = compiled(settings)
    stages.loading.close()
    inspect(stages)
    return settings


def _plan(arguments: argparse.Namespace) -> int:
    from adapter.commands.plan import show_plans

    return show_plans(_loaded(arguments), arguments.server, arguments.tool)


def _check(arguments: argparse.Namespace) -> int:
    import yaml

    from adapter.settings.consistency import cautions
    from adapter.settings.reference_page import masked

    settings = _checked(arguments)
    print(yaml.safe_dump(masked(settings), sort_keys=False, allow_unicode=True), end="")
    for caution in cautions(settings):
        print(f"warning: {caution}", file=sys.stderr)
    return OK


def _reference(_: argparse.Namespace) -> int:
    from adapter.settings.reference_page import reference

    print(reference(), end="")
    return OK


def _pins(arguments: argparse.Namespace) -> int:
    settings = _loaded(arguments)
    from adapter.commands import pins as pinning

    options = pinning.PinsOptions(
        arguments.topic,
        arguments.server,
        seen=arguments.seen,
        color=arguments.color,
        yes=arguments.yes,
        output=arguments.output,
        directory=arguments.config.parent if arguments.config else Path(),
    )
    return pinning.run(settings, options)


def _upload(arguments: argparse.Namespace) -> int:
    from adapter.commands import upload

    return upload.run(arguments.files, upload.UploadOptions(arguments.url, arguments.token, arguments.json))


def _download(arguments: argparse.Namespace) -> int:
    from adapter.commands import download

    options = download.DownloadOptions(arguments.url, arguments.token, arguments.output, arguments.force)
    return download.run(arguments.handles, options)


def _doctor(arguments: argparse.Namespace) -> int:
    import json

    from adapter.settings.section import Problem, SettingsError

    try:
        given = json.loads(arguments.arguments)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise SettingsError([Problem("--arguments", "must be a JSON object")])
    settings = _checked(arguments)
    from adapter.commands.doctor import examination

    options = examination.ExaminationOptions(
        arguments.server, arguments.tool, given, arguments.file, arguments.token, arguments.json
    )
    return examination.run(settings, options)


def _install(arguments: argparse.Namespace) -> int:
    from adapter.commands import install
    from adapter.commands.mcp_clients import ServerAddress

    if arguments.url is not None:
        name = arguments.name or arguments.url.rstrip("/").rpartition("/")[2]
        addresses = [ServerAddress(name, arguments.url, arguments.token_variable)]
    else:
        variable = arguments.token_variable or "MCP_ADAPTER_TOKEN"
        addresses = install.addresses_of(_loaded(arguments), arguments.server, variable)
    options = install.InstallOptions(
        arguments.client, arguments.file, only_print=arguments.only_print, yes=arguments.yes
    )
    return install.run(addresses, options)


def _demo(arguments: argparse.Namespace) -> int:
    from adapter import demo

    return demo.run(arguments.host, arguments.port)

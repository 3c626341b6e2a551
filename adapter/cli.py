"""The command line: argv to settings to what was asked for."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adapter.commands.client_flags import add_client_commands
from adapter.commands.command_parser import CommandParser, Commands
from adapter.commands.grants.flags import add_grants
from adapter.commands.help_text import EXAMPLES, add_command
from adapter.commands.pins_flags import add_pins
from adapter.commands.settings_flags import add_settings_flags, load_settings
from adapter.commands.wrap.flags import add_wrap
from adapter.version import VERSION

if TYPE_CHECKING:
    from adapter.settings.file.reading import ReadSettings
    from adapter.workers.serve_plan import ServePlan

OK, BAD_SETTINGS, INTERRUPTED = 0, 2, 130

# Each command imports what it runs when it runs: --version, --help and wrong arguments are answered without the
# settings, and the commands that only read settings without servers and clients.


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command of the arguments and return its exit status: 2 for settings that cannot be used.

    Wrong arguments raise SystemExit(2), as argparse does.
    """
    parser = _parser()
    given = list(sys.argv[1:] if argv is None else argv)
    if not given:
        parser.print_help(sys.stderr)
        return BAD_SETTINGS
    arguments = parser.parse_args(given)
    arguments.argv = given
    try:
        status = _act(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as head does. Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _act(arguments: argparse.Namespace) -> int:
    if arguments.action in _WITHOUT_SETTINGS:
        return int(arguments.action(arguments))
    from adapter.settings.section import SettingsError

    try:
        return int(arguments.action(arguments))
    except SettingsError as refused:
        print(f"mcp-adapter: the settings cannot be used:\n{refused}", file=sys.stderr)
        return BAD_SETTINGS


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="mcp-adapter",
        description="Reverse proxy for MCP servers that also moves files.",
        epilog="New here? mcp-adapter init writes a settings file, and mcp-adapter serve uses it.",
    )
    parser.add_argument("--version", action="version", version=f"mcp-adapter {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_wrap(commands)
    _add_init(commands)
    _add_serve(commands)
    _add_check(commands)
    _add_plan(commands)
    add_pins(commands, _pins)
    add_grants(commands, _grants)
    add_client_commands(commands)
    _add_config(commands)
    _add_completion(commands)
    _add_demo(commands)
    return parser


# --- init -------------------------------------------------------------------------------------------------------


def _add_init(commands: Commands) -> None:
    init = add_command(
        commands,
        "init",
        "write a settings file, empty or from the servers of an MCP client",
        EXAMPLES["init"],
    )
    init.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("config.yaml"),
        metavar="FILE",
        help="the file to write (default: %(default)s); - prints it",
    )
    init.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="configuration of an MCP client (Claude, Cursor, VS Code …) whose servers are taken; - reads "
        "standard input",
    )
    init.add_argument("--force", action="store_true", help="overwrite a file that exists")
    init.add_argument(
        "--schema",
        action="store_true",
        help="also write the JSON Schema beside it, with which editors complete and check keys",
    )
    init.set_defaults(action=_init)


def _init(arguments: argparse.Namespace) -> int:
    from adapter.commands.init import InitOptions, write_settings

    return write_settings(
        InitOptions(arguments.file, arguments.source, force=arguments.force, schema=arguments.schema)
    )


# --- serve and check --------------------------------------------------------------------------------------------


def _add_serve(commands: Commands) -> None:
    serve = add_command(commands, "serve", "run the adapter", EXAMPLES["serve"])
    add_settings_flags(serve)
    serve.add_argument(
        "--watch",
        action="store_true",
        help="restart when the settings file or a script below its folder changes",
    )
    # What the command starts itself as where there are workers: the process is the same, its memory is not.
    serve.add_argument("--supervise", action="store_true", help=argparse.SUPPRESS)
    serve.set_defaults(action=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.watch:
        from adapter.commands.check import checked_settings
        from adapter.commands.watch import watch

        return watch(arguments, checked_settings)
    if arguments.supervise:
        return _supervise(arguments)
    # Code is no garbage, and the collector would look through it a hundred times: 5 % of the start. `serve` enables it.
    gc.disable()
    from adapter.settings.file.reading import SettingsReading

    reading = SettingsReading(lambda: _read(arguments))
    from adapter.app.serve import serve

    read = reading.result()
    if read.settings.core.workers != 1:
        from adapter.settings.cores import worker_count

        if worker_count(read.settings.core.workers) > 1:
            _become_supervisor(arguments)
    return serve(*read)


def _become_supervisor(arguments: argparse.Namespace) -> NoReturn:
    """Replace the program of this process by one that has not imported what serving needs."""
    from adapter.commands.settings_flags import settings_file

    argv = [*arguments.argv, "--supervise"]
    if arguments.config is None and (found := settings_file()) is not None:
        # It has been said already which one that is.
        argv += ["--config", str(found)]
    sys.stdout.flush()
    sys.stderr.flush()
    # The supervisor takes it up; until then it would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A program that was found by its path does not look for its modules in the working directory.
    safe = [] if sys.path[0] in ("", str(Path.cwd())) else ["-P"]
    os.execv(sys.executable, [sys.executable, *safe, "-m", "adapter", *argv])  # noqa: S606 - ourselves


def _supervise(arguments: argparse.Namespace) -> int:
    from adapter.workers.serve_plan import PlanRefused
    from adapter.workers.supervisor import supervise

    try:
        return supervise(
            lambda: _serve_plan(arguments, starts=True), lambda: _serve_plan(arguments, starts=False)
        )
    except PlanRefused as refused:
        if refused.sentence:
            print(f"mcp-adapter: {refused.sentence}", file=sys.stderr)
        return refused.status


def _serve_plan(arguments: argparse.Namespace, *, starts: bool) -> ServePlan:
    """The plan of workers that start, or of those that take the place of others: these must not fail for what can be
    known before. Called in a child process. Raises PlanRefused.
    """
    from adapter import log
    from adapter.app.serve import is_refreshed, may_start, starts_programs
    from adapter.settings.section import SettingsError
    from adapter.workers.serve_plan import PlanRefused, plan_of

    try:
        if not starts:
            from adapter.commands.check import checked_settings

            checked_settings(arguments)
        read = _read(arguments)
    except SettingsError as refused:
        raise PlanRefused(f"the settings cannot be used:\n{refused}", BAD_SETTINGS) from None
    log.configure(read.settings.core.log_level)
    if starts and not (may_start(read.settings) and is_refreshed(read.settings)):
        raise PlanRefused("", 1)
    return plan_of(read, programs=starts_programs(read.settings))


def _read(arguments: argparse.Namespace) -> ReadSettings:
    """The settings for a process that serves, with their warnings."""
    settings = load_settings(arguments)
    from adapter.settings.cautions import cautions
    from adapter.settings.file.reading import ReadSettings

    return ReadSettings(settings, tuple(cautions(settings)))


def _add_check(commands: Commands) -> None:
    check = add_command(
        commands, "check", "find problems of the settings, without serving them", EXAMPLES["check"]
    )
    add_settings_flags(check)
    check.add_argument(
        "--effective", action="store_true", help="print all settings as they hold, with secrets masked"
    )
    check.add_argument(
        "--connect",
        action="store_true",
        help="also connect to each server; exits with 1 if one is unreachable",
    )
    check.add_argument("--json", action="store_true", help="print JSON; the exit status is the same")
    check.set_defaults(action=_check)


def _check(arguments: argparse.Namespace) -> int:
    from adapter.commands import check

    return check.run(arguments)


# --- plan, pins, grants --------------------------------------------------------------------------------------


def _add_plan(commands: Commands) -> None:
    plan = add_command(commands, "plan", "show the stages of a tool's calls", EXAMPLES["plan"])
    plan.add_argument("server", metavar="SERVER", help="id of the server")
    plan.add_argument(
        "tool", nargs="?", metavar="TOOL", help="name of the tool (default: all configured tools)"
    )
    add_settings_flags(plan)
    plan.add_argument("--json", action="store_true", help="print JSON; the exit status is the same")
    plan.set_defaults(action=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from adapter.commands.plan import show_plans

    return show_plans(load_settings(arguments), arguments.server, arguments.tool, as_json=arguments.json)


def _pins(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments)
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
    return pinning.run(settings, options, as_json=arguments.json)


def _grants(arguments: argparse.Namespace) -> int:
    settings = load_settings(arguments)
    from adapter.commands.grants import command as granting

    options = granting.GrantsOptions(arguments.topic, arguments.server, arguments.grant, arguments.json)
    return granting.run(settings, options)


# --- config -----------------------------------------------------------------------------------------------------


def _add_config(commands: Commands) -> None:
    config = add_command(commands, "config", "show documentation of the settings file", EXAMPLES["config"])
    topics = config.add_subparsers(title="topics", required=True, metavar="TOPIC")
    page = add_command(
        topics, "reference", "print every setting as a Markdown page", EXAMPLES["config reference"]
    )
    page.set_defaults(action=_reference)
    schema = add_command(
        topics, "schema", "print a JSON Schema of the settings file, for editors", EXAMPLES["config schema"]
    )
    schema.set_defaults(action=_schema)


def _reference(_: argparse.Namespace) -> int:
    from adapter.settings.reference_page import reference

    print(reference(), end="")
    return OK


def _schema(_: argparse.Namespace) -> int:
    from adapter.settings.json_schema import schema_text

    print(schema_text(), end="")
    return OK


# --- the shell, and a try ---------------------------------------------------------------------------------------


def _add_completion(commands: Commands) -> None:
    completion = add_command(
        commands, "completion", "print a script that completes mcp-adapter in a shell", EXAMPLES["completion"]
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(action=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    from adapter.commands.completion import script

    print(script(_parser(), arguments.shell))
    return OK


def _add_demo(commands: Commands) -> None:
    demo = add_command(
        commands, "demo", "run the adapter in front of a demo server on loopback", EXAMPLES["demo"]
    )
    demo.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    demo.add_argument("--port", type=int, default=8932, help="port to bind (default: %(default)s)")
    demo.set_defaults(action=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from adapter import demo

    return demo.run(arguments.host, arguments.port)


_WITHOUT_SETTINGS = (_completion,)
"""Commands that need neither settings nor the models of settings."""

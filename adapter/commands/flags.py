"""The arguments of all commands, in the order in which help shows these."""

from __future__ import annotations

import argparse
from pathlib import Path

from adapter.commands.command_parser import (
    JSON,
    CommandParser,
    Commands,
    add_command,
    add_settings_flags,
    add_topics,
)
from adapter.commands.wrap.flags import add_wrap

CLIENT_NAMES = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "goose", "gemini-cli")
"""The clients that install knows; named here because help is shown without loading what knows them."""

_TOKEN = "the adapter's token (default: $MCP_ADAPTER_TOKEN)"  # noqa: S105 (a sentence)


def add_commands(parser: CommandParser) -> None:
    """Add all of them."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_wrap(commands)
    _add_of_settings(commands)
    _add_pins(commands)
    _add_grants(commands)
    _add_doctor(commands)
    _add_files(commands)
    _add_client(commands)
    _add_install(commands)
    topics = add_topics(commands, "config", "show documentation of the settings file")
    add_command(topics, "reference", "print every setting as a Markdown page")
    add_command(topics, "schema", "print a JSON Schema of the settings file, for editors")
    completion = add_command(commands, "completion", "print a script that completes mcp-adapter in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(parser=parser)
    demo = add_command(commands, "demo", "run the adapter in front of a demo server on loopback", "demo")
    demo.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    demo.add_argument("--port", type=int, default=8932, help="port to bind (default: %(default)s)")


# --- settings -----------------------------------------------------------------------------------------------------


def _add_of_settings(commands: Commands) -> None:
    init = add_command(commands, "init", "write a settings file, empty or from the servers of an MCP client")
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
    init.add_switch("--force", "overwrite a file that exists")
    text = "also write the JSON Schema beside it, with which editors complete and check keys"
    init.add_switch("--schema", text)
    serve = add_command(commands, "serve", "run the adapter")
    add_settings_flags(serve)
    serve.add_switch("--watch", "use changed settings and scripts at once, also such that need a new process")
    serve.add_switch(
        "--retry-start",
        "stay up when the start fails, with failing readiness and the reason in /healthz, and try again "
        "(also: MCP_ADAPTER_RETRY_START=1)",
    )
    # The number of starts that have failed before this one.
    serve.add_argument("--failed-starts", type=int, default=0, help=argparse.SUPPRESS)
    # What the command starts itself as where there are workers: the process is the same, its memory is not.
    serve.add_switch("--supervise", argparse.SUPPRESS)
    # Of a process that serves, which has another one read its settings again.
    serve.add_switch("--read-settings", argparse.SUPPRESS)
    check = add_command(commands, "check", "find problems of the settings, without serving them")
    add_settings_flags(check)
    check.add_switch("--effective", "print all settings as they hold, with secrets masked")
    text = "also connect to each server, issuer of tokens and Redis; exits with 1 if one is unreachable"
    check.add_switch("--connect", text)
    check.add_switch("--json", JSON)
    plan = add_command(commands, "plan", "show the stages of a tool's calls")
    plan.add_argument("server", metavar="SERVER", help="id of the server")
    plan.add_argument(
        "tool", nargs="?", metavar="TOOL", help="name of the tool (default: all configured tools)"
    )
    add_settings_flags(plan)
    plan.add_switch("--json", JSON)


# --- pins and grants ----------------------------------------------------------------------------------------------

_TOPICS_OF_PINS = {
    "list": "show the baseline of each server's sessions, what they first saw, and the current tools",
    "diff": "show changes line by line; exits with 1 if there are any",
    "check": "show changes since lock files and accepted tools only, for CI; exits with 1 if there are any, with 2 "
    "if something cannot be read",
    "accept": "make the current tools the baseline of every session",
    "export": "write the current tools to lock files",
}


def _add_pins(commands: Commands) -> None:
    topics = add_topics(commands, "pins", "review changed tool definitions")
    for topic, text in _TOPICS_OF_PINS.items():
        command = add_command(topics, topic, text)
        command.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
        add_settings_flags(command)
        command.add_switch("--seen", "use the tools that the adapter saw last, without contacting a server")
        command.set_defaults(json=False)
        if topic in ("list", "diff", "check"):
            command.add_switch("--json", JSON)
        if topic == "accept":
            command.add_switch("--yes", "accept without asking")
        if topic == "export":
            command.add_argument(
                "--output",
                type=Path,
                metavar="FILE",
                help="file to write (default: each server's tools_lock, or tools.lock next to the "
                "settings file); - prints to standard output",
            )


def _add_grants(commands: Commands) -> None:
    topics = add_topics(commands, "grants", "show and revoke what people have authorized")
    listing = add_command(topics, "list", "show the grants of each server")
    listing.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
    add_settings_flags(listing)
    listing.add_switch("--json", "print JSON")
    text = "revoke a grant: forget it, and tell its authorization server"
    revoking = add_command(topics, "revoke", text)
    revoking.add_argument("server", metavar="SERVER", help="id of the server")
    revoking.add_argument(
        "grant",
        metavar="PRINCIPAL",
        help="the principal or the id of the grant, as list shows them; all for all",
    )
    add_settings_flags(revoking)


# --- doctor -----------------------------------------------------------------------------------------------------


def _add_doctor(commands: Commands) -> None:
    text = "look at the adapter, its machine and its servers as a client would meet them"
    doctor = add_command(commands, "doctor", text, "commands.doctor.examination")
    doctor.add_argument("--server", metavar="ID", help="only this server")
    doctor.add_argument("--tool", help="move a file through this tool of the server, there and back")
    text = "what else the tool needs, as an object"
    doctor.add_argument("--arguments", default="{}", metavar="JSON", help=text)
    doctor.add_argument("--file", type=Path, help="the file to move (default: a text of one line)")
    doctor.add_argument("--token", help=f"{_TOKEN}, or that of the settings")
    doctor.add_switch("--json", JSON)
    add_settings_flags(doctor)


# --- files ------------------------------------------------------------------------------------------------------


def _add_files(commands: Commands) -> None:
    upload = add_command(commands, "upload", "upload files for a server's tools, and print their handles")
    upload.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file to upload")
    upload.add_argument(
        "--url",
        required=True,
        help="address of the server behind the adapter, or the upload_url that its tool gave out",
    )
    upload.add_switch("--json", "print names, sizes and digests too, as JSON")
    upload.add_argument("--token", help=_TOKEN)
    download = add_command(commands, "download", "download what a tool wrote, and print the path of the file")
    download.add_argument(
        "handles", nargs="+", metavar="HANDLE", help="an artifact:// URI, or the download URL of a result"
    )
    text = "address of the server behind the adapter; an artifact:// URI needs it"
    download.add_argument("--url", help=text)
    download.add_argument(
        "--output",
        "-o",
        metavar="PATH",
        help="file or folder to write to (default: here, under the file's own name); - prints the content",
    )
    download.add_switch("--force", "overwrite files that exist")
    download.add_argument("--token", help=_TOKEN)


# --- servers of any kind ------------------------------------------------------------------------------------------


_URL = "address of the server, such as a mount of the adapter"


def _add_client(commands: Commands) -> None:
    tools = add_command(commands, "tools", "list the tools of any MCP server", "commands.client.tools")
    tools.add_argument("url", metavar="URL", help=_URL)
    tools.add_argument("tool", nargs="?", metavar="TOOL", help="show all about this one")
    _add_credentials(tools)
    tools.add_switch("--json", JSON)
    text = "call a tool of any MCP server, with files"
    call = add_command(commands, "call", text, "commands.client.call")
    call.add_argument("url", metavar="URL", help=_URL)
    call.add_argument("tool", metavar="TOOL", help="name of the tool, as mcp-adapter tools shows it")
    words = call.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="NAME=VALUE",
        help="arguments: name=value has the type that the tool takes, name=@path uploads a file, name:=JSON is "
        "JSON, and name=@@text a text that begins with @",
    )
    words.required = False  # the sentence on what is missing would name it beside TOOL
    add_call_flags(call)
    text = "pass on a remote server over stdio, to a host that speaks only that"
    connect = add_command(commands, "connect", text, "commands.connect.command")
    connect.add_argument("url", metavar="URL", help=_URL)
    _add_credentials(connect, "; ${NAME} in it is read from the environment")
    text = (
        "upload a file in this folder where a call names its path; may be given several times (default: none)"
    )
    connect.add_list("--folder", "DIR", text, Path)
    text = "upload no file or folder of such a name or path below --folder, such as '*.key'"
    connect.add_list("--deny", "GLOB", text)
    text = "save the files of results in this folder, none over another one, and tell the model where"
    connect.add_argument("--save-to", type=Path, metavar="DIR", help=text)


def add_call_flags(parser: CommandParser) -> None:
    """Add the flags of ``call``, which may also stand behind the arguments of the tool."""
    text = "save the files of the result in this folder"
    parser.add_argument("--save-to", type=Path, metavar="DIR", help=text)
    text = "how long to wait for the result (default: %(default)g)"
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help=text)
    _add_credentials(parser)
    parser.add_switch("--json", JSON)


def _add_credentials(parser: CommandParser, of_header: str = "") -> None:
    text = "token that is sent to the URL (default: $MCP_ADAPTER_TOKEN); without one people sign in"
    parser.add_argument("--token", help=text)
    parser.add_list("--header", "'NAME: VALUE'", f"header sent to the URL{of_header}")


# --- install ----------------------------------------------------------------------------------------------------


def _add_install(commands: Commands) -> None:
    text = "tell an MCP client of the servers, in the client's own file, after showing the change"
    install = add_command(commands, "install", text)
    install.add_argument("client", choices=CLIENT_NAMES, metavar="CLIENT", help=", ".join(CLIENT_NAMES))
    text = "address of one server behind the adapter (default: those of the settings)"
    install.add_argument("--url", help=text)
    text = "name of the server at --url in the client (default: the end of the URL)"
    install.add_argument("--name", help=text)
    install.add_argument("--server", metavar="ID", help="only this server of the settings")
    install.add_argument(
        "--token-variable",
        metavar="VAR",
        help="environment variable that the client reads the adapter's token from (default: MCP_ADAPTER_TOKEN "
        "where the settings have tokens, none for --url)",
    )
    install.add_argument("--file", type=Path, help="the client's file, if it is not in its usual place")
    text = (
        "let the client start mcp-adapter connect instead of opening the URL itself, as Claude Desktop does"
    )
    install.add_switch("--stdio", text)
    install.add_list("--folder", "DIR", "with --stdio: see connect", Path)
    install.add_list("--deny", "GLOB", "with --folder: see connect")
    install.add_argument("--save-to", type=Path, metavar="DIR", help="with --stdio: see connect")
    install.add_switch("--print", "only show the change")
    install.add_switch("--yes", "write without asking")
    install.add_switch("--remove", "take the servers out of the file; --name alone takes that one")
    add_settings_flags(install)

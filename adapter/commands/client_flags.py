"""The arguments of commands that act as a client, or prepare one: doctor, upload, download and install."""

from __future__ import annotations

import argparse
from pathlib import Path

from adapter.commands.command_parser import Commands
from adapter.commands.help_text import EXAMPLES, add_command
from adapter.commands.settings_flags import add_settings_flags, load_settings

CLIENT_NAMES = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "goose", "gemini-cli")
"""The clients that install knows; named here because help is shown without loading what knows them."""

_TOKEN = "the adapter's token (default: $MCP_ADAPTER_TOKEN)"  # noqa: S105 (a sentence)


def add_client_commands(commands: Commands) -> None:
    """Add all of them."""
    _add_doctor(commands)
    _add_upload(commands)
    _add_download(commands)
    _add_install(commands)


# --- doctor -----------------------------------------------------------------------------------------------------


def _add_doctor(commands: Commands) -> None:
    doctor = add_command(
        commands,
        "doctor",
        "look at the adapter, its machine and its servers as a client would meet them",
        EXAMPLES["doctor"],
    )
    doctor.add_argument("--server", metavar="ID", help="only this server")
    doctor.add_argument("--tool", help="move a file through this tool of the server, there and back")
    doctor.add_argument(
        "--arguments", default="{}", metavar="JSON", help="what else the tool needs, as an object"
    )
    doctor.add_argument("--file", type=Path, help="the file to move (default: a text of one line)")
    doctor.add_argument("--token", help=f"{_TOKEN}, or that of the settings")
    doctor.add_argument("--json", action="store_true", help="print JSON; the exit status is the same")
    add_settings_flags(doctor)
    doctor.set_defaults(action=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    import json

    from adapter.settings.section import Problem, SettingsError

    try:
        given = json.loads(arguments.arguments)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise SettingsError([Problem("--arguments", "must be a JSON object")])
    from adapter.commands.check import checked_settings
    from adapter.commands.doctor import examination

    options = examination.ExaminationOptions(
        arguments.server, arguments.tool, given, arguments.file, arguments.token, arguments.json
    )
    return examination.run(checked_settings(arguments), options)


# --- files ------------------------------------------------------------------------------------------------------


def _add_upload(commands: Commands) -> None:
    upload = add_command(
        commands, "upload", "upload files for a server's tools, and print their handles", EXAMPLES["upload"]
    )
    upload.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file to upload")
    upload.add_argument(
        "--url",
        required=True,
        help="address of the server behind the adapter, or the upload_url that its tool gave out",
    )
    upload.add_argument("--json", action="store_true", help="print names, sizes and digests too, as JSON")
    upload.add_argument("--token", help=_TOKEN)
    upload.set_defaults(action=_upload)


def _upload(arguments: argparse.Namespace) -> int:
    from adapter.commands import upload

    return upload.run(arguments.files, upload.UploadOptions(arguments.url, arguments.token, arguments.json))


def _add_download(commands: Commands) -> None:
    download = add_command(
        commands,
        "download",
        "download what a tool wrote, and print the path of the file",
        EXAMPLES["download"],
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
    download.add_argument("--token", help=_TOKEN)
    download.set_defaults(action=_download)


def _download(arguments: argparse.Namespace) -> int:
    from adapter.commands import download

    options = download.DownloadOptions(arguments.url, arguments.token, arguments.output, arguments.force)
    return download.run(arguments.handles, options)


# --- install ----------------------------------------------------------------------------------------------------


def _add_install(commands: Commands) -> None:
    install = add_command(
        commands,
        "install",
        "tell an MCP client of the servers, in the client's own file, after showing the change",
        EXAMPLES["install"],
    )
    install.add_argument("client", choices=CLIENT_NAMES, metavar="CLIENT", help=", ".join(CLIENT_NAMES))
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
        "where the settings have tokens, none for --url)",
    )
    install.add_argument("--file", type=Path, help="the client's file, if it is not in its usual place")
    install.add_argument("--print", action="store_true", dest="only_print", help="only show the change")
    install.add_argument("--yes", action="store_true", help="write without asking")
    install.add_argument(
        "--remove", action="store_true", help="take the servers out of the file; --name alone takes that one"
    )
    add_settings_flags(install)
    install.set_defaults(action=_install)


def _install(arguments: argparse.Namespace) -> int:
    from adapter.commands import install
    from adapter.rules.clients.mcp_clients import ServerAddress

    if arguments.remove and arguments.name is not None:
        addresses = [ServerAddress(arguments.name, "")]
    elif arguments.url is not None:
        name = arguments.name or arguments.url.rstrip("/").rpartition("/")[2]
        addresses = [ServerAddress(name, arguments.url, arguments.token_variable)]
    else:
        addresses = install.addresses_of(load_settings(arguments), arguments.server, arguments.token_variable)
    options = install.InstallOptions(
        arguments.client,
        arguments.file,
        only_print=arguments.only_print,
        yes=arguments.yes,
        remove=arguments.remove,
    )
    return install.run(addresses, options)

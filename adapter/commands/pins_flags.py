"""The arguments of ``mcp-adapter pins`` and its topics."""

from __future__ import annotations

from pathlib import Path

from adapter.commands.command_parser import CommandParser, Commands
from adapter.commands.help_text import JSON, add_command, add_topics
from adapter.commands.settings_flags import add_settings_flags

_TOPICS = {
    "list": "show the baseline of each server's sessions, what they first saw, and the current tools",
    "diff": "show changes side by side; exits with 1 if there are any",
    "check": "the same for CI: compare only with lock files and accepted tools; exits with 2 if something "
    "cannot be read",
    "accept": "make the current tools the baseline of every session",
    "export": "write the current tools to lock files",
}


def add_pins(commands: Commands) -> None:
    """Add the command."""
    topics = add_topics(commands, "pins", "review changed tool definitions")
    for topic, text in _TOPICS.items():
        command = add_command(topics, topic, text)
        command.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
        add_settings_flags(command)
        command.add_switch("--seen", "use the tools that the adapter saw last, without contacting a server")
        command.set_defaults(color="never", json=False)
        _add_flags_of(topic, command)


def _add_flags_of(topic: str, command: CommandParser) -> None:
    if topic in ("list", "diff", "check"):
        command.add_switch("--json", JSON)
    if topic in ("diff", "check", "accept"):
        command.add_argument(
            "--color",
            choices=("auto", "always", "never"),
            default="auto",
            help="when to use color (default: auto, which means on a terminal)",
        )
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

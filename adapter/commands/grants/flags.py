"""The arguments of ``mcp-adapter grants`` and its topics."""

from __future__ import annotations

from adapter.commands.command_parser import Commands
from adapter.commands.help_text import add_command, add_topics
from adapter.commands.settings_flags import add_settings_flags

_RUNS = "commands.grants.command"


def add_grants(commands: Commands) -> None:
    """Add the command."""
    topics = add_topics(commands, "grants", "show and revoke what people have authorized")
    listing = add_command(topics, "list", "show the grants of each server", _RUNS)
    listing.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
    add_settings_flags(listing)
    listing.add_switch("--json", "print JSON")
    text = "revoke a grant: forget it, and tell its authorization server"
    revoking = add_command(topics, "revoke", text, _RUNS)
    revoking.add_argument("server", metavar="SERVER", help="id of the server")
    revoking.add_argument(
        "grant",
        metavar="PRINCIPAL",
        help="the principal or the id of the grant, as list shows them; all for all",
    )
    add_settings_flags(revoking)

"""The arguments of ``mcp-adapter grants`` and its topics."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from adapter.commands.command_parser import Commands
from adapter.commands.help_text import EXAMPLES, add_command
from adapter.commands.settings_flags import add_settings_flags


def add_grants(commands: Commands, action: Callable[[argparse.Namespace], int]) -> None:
    """Add the command, which runs ``action``."""
    text = "show and revoke what people have authorized"
    grants = add_command(commands, "grants", text, EXAMPLES["grants"])
    topics = grants.add_subparsers(title="topics", required=True, metavar="TOPIC")
    listing = add_command(topics, "list", "show the grants of each server", EXAMPLES["grants list"])
    listing.add_argument("server", nargs="?", metavar="SERVER", help="id of one server (default: all)")
    add_settings_flags(listing)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(action=action, topic="list", grant=None)
    text = "revoke a grant: forget it, and tell its authorization server"
    revoking = add_command(topics, "revoke", text, EXAMPLES["grants revoke"])
    revoking.add_argument("server", metavar="SERVER", help="id of the server")
    revoking.add_argument(
        "grant",
        metavar="PRINCIPAL",
        help="the principal or the id of the grant, as list shows them; all for all",
    )
    add_settings_flags(revoking)
    revoking.set_defaults(action=action, topic="revoke", json=False)

"""``python -m adapter`` and the ``mcp-adapter`` command."""

from __future__ import annotations

import sys

from adapter import cli


def main() -> None:
    """Runs the command line and ends the process with its exit status."""
    sys.exit(cli.run())


if __name__ == "__main__":
    main()

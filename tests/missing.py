"""What a machine may lack: a test that needs it is skipped, with the reason. ``conftest.py`` sees to that."""

from __future__ import annotations


class Missing(Exception):
    """A program or package that cannot be had on this machine; the text names it and is fit for a test's skip."""

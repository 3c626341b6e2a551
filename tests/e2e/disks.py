"""Small disks that fill up: each is a mount of its own, which only the process it was made for can see."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.processes import Adapter

DISK = 16 << 20
"""Bytes of such a disk."""

IN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def small_disk(store: Path) -> list[str | Path]:
    """A launcher that mounts a disk of its own at ``store``, which only what it launches can see.

    A namespace of users gives the right to mount to those who do not have it.
    """
    mount = f'mount -t tmpfs -o size={DISK} none "$0" && exec "$@"'
    return [*IN_NAMESPACE, "sh", "-c", mount, store]


def as_seen_by(front: Adapter, path: Path) -> Path:
    """A path as the adapter's process sees it, for somebody else on the same disk."""
    assert front.running is not None
    return Path(f"/proc/{front.running.process.pid}/root{path}")


def fill(disk: Path, leave: int) -> None:
    """Lets somebody's file grow on ``disk`` until no more than ``leave`` bytes are free."""
    status = os.statvfs(disk)
    with (disk / "filler").open("ab") as filler:
        filler.write(bytes(max(0, status.f_bavail * status.f_frsize - leave)))

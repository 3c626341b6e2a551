"""A disk that can be full and clocks that can jump, for the processes of one run."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.disks import IN_NAMESPACE, fill
from tests.e2e.processes import START_TIMEOUT, Running, start

DISK = 64 << 20
"""Bytes of the disk."""

HERE = Path(__file__).parent


@dataclass
class Disk:
    """A small disk at ``place``, which outlives the processes that use it: a process that sleeps holds it.

    Without the right to mount there is no such disk: ``place`` is a directory, and never full.
    """

    place: Path
    holder: Running | None = None

    async def mount(self) -> None:
        """Mount the disk, where the system allows it."""
        self.place.mkdir()
        if shutil.which("nsenter") is None or subprocess.run([*IN_NAMESPACE, "true"], check=False).returncode:
            return
        held = f'mount -t tmpfs -o size={DISK} none "$0" && echo mounted && exec sleep infinity'
        argv: list[str | Path] = [*IN_NAMESPACE, "sh", "-c", held, self.place]
        self.holder = await start(argv, self.place.parent / "disk.log")
        assert await self.holder.line(START_TIMEOUT) == "mounted"

    async def release(self) -> None:
        if self.holder is not None:
            await self.holder.kill()

    @property
    def launcher(self) -> list[str | Path]:
        """Words before a command whose process is to see the disk."""
        if self.holder is None:
            return []
        return [
            "nsenter",
            "--preserve-credentials",
            "-U",
            "-m",
            "--wd",
            "-t",
            str(self.holder.process.pid),
            "--",
        ]

    @property
    def seen(self) -> Path:
        """The disk, as processes elsewhere see it."""
        if self.holder is None:
            return self.place
        return Path(f"/proc/{self.holder.process.pid}/root{self.place}")

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError):  # others have taken the last bytes meanwhile
            fill(self.seen, leave=0)

    def free(self) -> None:
        (self.seen / "filler").unlink(missing_ok=True)


@dataclass
class Clocks:
    """The time of day of single processes. Without a C compiler there are none, and no clock jumps."""

    place: Path
    library: Path | None = field(default=None, init=False)

    async def build(self) -> None:
        """Compile the library that moves the clock, where there is a compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return
        library = self.place / "clock.so"
        argv = [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "clock.c", "-ldl", "-lm"]
        process = await asyncio.create_subprocess_exec(*map(str, argv))
        if await process.wait() == 0:
            self.library = library

    def environment(self, name: str) -> Mapping[str, str]:
        """The environment of a process whose clock is to be moved under this name."""
        if self.library is None:
            return {}
        offset = self._offset(name)
        if not offset.exists():
            offset.write_bytes(struct.pack("d", 0.0))
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET": str(offset)}

    def jump(self, name: str, seconds: float) -> None:
        """Let the clock differ from that of the machine by so many seconds."""
        with self._offset(name).open("r+b") as file:
            file.write(struct.pack("d", seconds))

    def _offset(self, name: str) -> Path:
        return self.place / f"{name}.clock"

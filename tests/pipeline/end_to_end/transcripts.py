"""The transcripts of ``road.txt``: what each step of a day was on each road, every text once.

``python -m tests.pipeline.end_to_end.transcripts`` writes the file anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import string
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.pipeline.end_to_end.road import ROADS, Road, travelled

FILE = Path(__file__).with_name("road.txt")

HEAD = """\
What an upstream received (>) and a client got (<) on each road, by the steps of a day.

Under "roads" each step has one letter for each combination of guard (off, warn, block), shaped, code, planned, takes
and draws (no, yes), the last one changing fastest; each letter stands for a text below.
`python -m tests.pipeline.end_to_end.transcripts` writes this file; road.py beside it says what a day is.
"""


@dataclass
class Transcripts:
    """``texts`` by their digests; ``steps`` has the digest of a step's text by its road."""

    texts: dict[str, str] = field(default_factory=dict)
    steps: dict[str, dict[Road, str]] = field(default_factory=dict)

    def add(self, road: Road, account: Mapping[str, str]) -> None:
        """Take in the account of a day."""
        for step, text in account.items():
            key = hashlib.sha256(text.encode()).hexdigest()[:8]
            self.texts.setdefault(key, text)
            self.steps.setdefault(step, {})[road] = key

    def of(self, road: Road) -> dict[str, str]:
        """The account of the day on this road."""
        return {step: self.texts[keys[road]] for step, keys in self.steps.items() if road in keys}

    def written(self) -> str:
        """The file's text."""
        lines = [HEAD, "# roads", ""]
        for step, keys in self.steps.items():
            letters = dict(zip(dict.fromkeys(keys.values()), string.ascii_letters, strict=False))
            row = "".join(letters[keys[road]] for road in ROADS)
            lines += [f"{step}: {row}", *(f"  {letter} {key}" for key, letter in letters.items())]
        for key, text in self.texts.items():
            lines += ["", f"# {key}", "", text]
        return "\n".join(lines) + "\n"


def read(file: str) -> Transcripts:
    """The transcripts of a file's text."""
    table, *sections = file.partition("# roads\n\n")[2].split("\n\n# ")
    found = Transcripts()
    for section in sections:
        key, _, text = section.partition("\n\n")
        found.texts[key] = text.removesuffix("\n") if section is sections[-1] else text
    row, step, letters = "", "", dict[str, str]()
    for line in [*table.splitlines(), ": "]:
        if line.startswith("  "):
            letter, key = line.split()
            letters[letter] = key
            continue
        if step:
            found.steps[step] = {road: letters[letter] for road, letter in zip(ROADS, row, strict=True)}
        step, _, row = line.partition(": ")
        letters = {}
    return found


async def all_of_them() -> Transcripts:
    """The transcripts of all roads as they are now."""
    found = Transcripts()
    for road in ROADS:
        with tempfile.TemporaryDirectory() as place:
            found.add(road, await travelled(road, Path(place)))
    return found


if __name__ == "__main__":
    FILE.write_text(asyncio.run(all_of_them()).written())

"""Completion in a real shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands.running import mcp_adapter

ASK = """
source completion.bash
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
entry=$(complete -p mcp-adapter); function=${{entry##*-F }}; function=${{function%% *}}
$function mcp-adapter "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


TYPE = """
zmodload zsh/zpty
zpty inner 'TERM=dumb zsh -f -i'
zpty -w inner 'mcp-adapter() {{ print -r -- "DONE:$*:" }}
fpath=({place} $fpath); autoload -Uz compinit; compinit -u -D; print RE''ADY'
zpty -r inner answer '*READY*'
zpty -w -n inner '{line}'$'\\t\\n'
zpty -r inner answer '*DONE:*:*'
print -r -- ${{${{answer##*DONE:}}%%:*}}
"""
"""In a terminal of its own: a line, a tab and a return. The command prints the arguments that it was called with."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts of all shells, and a file."""
    place = tmp_path_factory.mktemp("shell")
    for name, file in (("bash", "completion.bash"), ("fish", "completion.fish"), ("zsh", "_mcp-adapter")):
        (place / file).write_text(mcp_adapter(place, "completion", name).stdout)
    (place / "config.yaml").touch()
    return place


def completed(shell: Path, *words: str) -> set[str]:
    """The completions that bash shows for the last of these words, behind ``mcp-adapter``."""
    quoted = " ".join(f"'{word}'" for word in ("mcp-adapter", *words))
    command = ["bash", "--norc", "-c", ASK.format(words=quoted)]
    done = subprocess.run(command, cwd=shell, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands(shell: Path) -> None:
    """All of them, and those that begin as typed."""
    assert {"init", "serve", "check", "plan", "pins", "config", "completion", "demo"} <= completed(shell, "")
    assert completed(shell, "ch") == {"check"}
    assert completed(shell, "pins", "ex") == {"export"}


def test_bash_completes_flags_and_choices(shell: Path) -> None:
    """Each command has its own."""
    assert completed(shell, "check", "--e") == {"--effective"}
    assert completed(shell, "completion", "") >= {"bash", "zsh", "fish"}
    assert completed(shell, "completion", "f") == {"fish"}


def test_bash_completes_files(shell: Path) -> None:
    """A FILE is a file of the folder."""
    assert "config.yaml" in completed(shell, "serve", "--config", "conf")


LINES = [
    ("ch", "check"),
    ("pins ex", "pins export"),
    ("check --ef", "check --effective"),
    ("completion zs", "completion zsh"),
    ("serve --config conf", "serve --config config.yaml"),
]
"""Lines with one completion, and the lines that they become."""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("line", "whole"), LINES)
def test_zsh_completes_what_is_typed(shell: Path, line: str, whole: str) -> None:
    """A tab completes commands, flags, choices and files."""
    typed = TYPE.format(place=shell, line=f"mcp-adapter {line}")
    done = subprocess.run(["zsh", "-f", "-c", typed], cwd=shell, capture_output=True, text=True, timeout=30)
    assert (done.stdout.strip(), done.stderr) == (whole, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "whole"), LINES)
def test_fish_completes_what_is_typed(shell: Path, line: str, whole: str) -> None:
    """It offers the same, with a description behind a tab."""
    asked = f'source completion.fish; complete -C "mcp-adapter {line}"'
    command = ["fish", "--no-config", "-c", asked]
    done = subprocess.run(command, cwd=shell, capture_output=True, text=True, timeout=30)
    offered = [each.partition("\t")[0] for each in done.stdout.splitlines()]
    assert (offered, done.stderr) == ([whole.split()[-1]], "")


@pytest.mark.parametrize(
    ("name", "telling"), [("bash", "complete "), ("zsh", "#compdef mcp-adapter"), ("fish", "complete -c")]
)
def test_there_is_a_script_for_each_shell(tmp_path: Path, name: str, telling: str) -> None:
    """The shell itself can read it, where this machine has it."""
    done = mcp_adapter(tmp_path, "completion", name)
    assert done.returncode == 0 and telling in done.stdout
    if shutil.which(name) is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout)
        read = subprocess.run([name, "-n", script], capture_output=True, text=True, timeout=30)
        assert (read.returncode, read.stderr) == (0, "")


def test_an_unknown_shell_is_refused(tmp_path: Path) -> None:
    """The sentence has those that are known."""
    done = mcp_adapter(tmp_path, "completion", "tcsh")
    assert done.returncode == 2 and "bash" in done.stderr

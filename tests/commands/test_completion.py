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


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script for bash, and two files."""
    place = tmp_path_factory.mktemp("shell")
    (place / "completion.bash").write_text(mcp_adapter(place, "completion", "bash").stdout)
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
    assert completed(shell, "pins", "diff", "--color", "a") == {"auto", "always"}


def test_bash_completes_files(shell: Path) -> None:
    """A FILE is a file of the folder."""
    assert "config.yaml" in completed(shell, "serve", "--config", "conf")


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

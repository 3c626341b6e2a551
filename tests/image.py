"""``python -m tests.image BASE``: does what ``deploy/Dockerfile`` says, without a container engine, as root on Linux.

``BASE`` is the root of a small Debian with Python, pip and ``venv``, which stands for the image that every stage begins
from; one is made there with ``debootstrap`` if there is none. Each stage is an overlay above it, each RUN line a shell
below ``chroot``. Both images are then run as a container would be: as their user without capabilities, on a file system
that cannot be written but for the two volumes and /tmp. Their own health check is asked, files that they may not write
are tried, and their own stop signal ends them. The full one also wraps a server that npx fetches, if npm's registry can
be reached. ``--extras`` is the build argument EXTRAS.

It shows that the steps work and the result runs. It says nothing about an engine, a registry, or the ``python`` image.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path, PurePosixPath

from tests.dockerfile import Instruction, Stage, last, let_through, stages
from tests.ports import free_port

ROOT = Path(__file__).parents[1]
TIMEOUT = 600.0
"""Seconds that one step may take."""

START_TIMEOUT = 30.0
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,util-linux"
DEVICES = {"null": 3, "zero": 5, "random": 8, "urandom": 9}
WRITABLE = ("data", "var/lib/mcp-adapter", "tmp")
IMAGES = ("slim", "full")
SERVER = "@modelcontextprotocol/server-everything"
FETCH_TIMEOUT = 300.0
VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class ImageBuild:
    """The stages of a Dockerfile below ``place``, each above ``base``."""

    def __init__(self, base: Path, place: Path, arguments: dict[str, str]) -> None:
        self._base = base
        self._place = place
        self._arguments = arguments
        self._roots: dict[str, Path] = {}
        self._context = place / "context"
        self.environment: dict[str, str] = {}
        self.folder = "/"

    def __repr__(self) -> str:
        return f"<ImageBuild of {[*self._roots]}>"

    def build(self, stage: Stage) -> Path:
        """Do all steps of a stage. Returns its root."""
        root = self._overlay(stage.name or "image")
        self._roots[stage.name] = root
        self.environment, self.folder = (
            {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            "/",
        )
        for step in stage.steps:
            print(f"{stage.name or 'image'}: {step.word} {step.rest[:90]}", flush=True)
            self._do(root, step)
        return root

    def fill_context(self) -> None:
        """Copy what a build would be sent."""
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in let_through(listed.stdout.split(), (ROOT / ".dockerignore").read_text()):
            (self._context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self._context / name, follow_symlinks=False)

    def _overlay(self, name: str) -> Path:
        upper, work, root = (self._place / f"{name}.{kind}" for kind in ("upper", "work", "root"))
        for each in (upper, work, root):
            each.mkdir()
        options = f"lowerdir={self._base},upperdir={upper},workdir={work}"
        run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)])
        run(["mount", "-t", "proc", "proc", str(root / "proc")])
        # Never this machine's own: what happens below the root must reach nothing of it.
        for name, minor in DEVICES.items():
            (root / "dev" / name).unlink(missing_ok=True)
            os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            (root / "dev" / name).chmod(0o666)
        return root

    def _do(self, root: Path, step: Instruction) -> None:
        match step.word:
            case "ARG":
                name, _, default = step.rest.partition("=")
                self.environment[name] = self._arguments.get(name, default)
            case "ENV":
                for pair in shlex.split(step.rest):
                    name, _, value = pair.partition("=")
                    self.environment[name] = VARIABLE.sub(lambda found: self.environment[found[1]], value)
            case "WORKDIR":
                self.folder = step.rest
                (root / self.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(root, step.rest)
            case "RUN":
                self._run(root, step.rest)

    def _copy(self, root: Path, rest: str) -> None:
        *sources, target = rest.split()
        origin = self._context
        if sources[0].startswith("--from="):
            origin = self._roots[sources.pop(0).removeprefix("--from=")]
        there = root / f"{PurePosixPath(self.folder) / target}".lstrip("/")
        for source in sources:
            found = origin / source.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, there, symlinks=True, dirs_exist_ok=True)
            else:
                place = there / found.name if target.endswith("/") else there
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, place)

    def _run(self, root: Path, script: str) -> None:
        inside = f"cd {shlex.quote(self.folder)} && {script}"
        run(["chroot", str(root), "/bin/sh", "-ec", inside], {**_package_index(), **self.environment})


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a command to its end. Raises CalledProcessError."""
    subprocess.run(command, check=True, timeout=TIMEOUT, env=environment)


def _package_index() -> dict[str, str]:
    """How this machine reaches an index of packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or "proxy" in name.lower()
    }


def make_base(base: Path) -> None:
    """Make the root of a Debian that stands for ``python:…-slim``, with this machine's certificates."""
    if not (base / "usr/bin/python3").exists():
        run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(base)])
    # As in that image, where it is the only Python.
    for name in ("python", "python3"):
        link = base / "usr/local/bin" / name
        if not link.is_symlink():
            link.symlink_to("/usr/bin/python3")
    for each in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
        shutil.copyfile(f"/{each}", base / each)


class ContainerLike:
    """The last stage as a process: ``user`` is ``UID:GID``, and ``variables`` are those of the container."""

    def __init__(self, root: Path, user: str, variables: dict[str, str]) -> None:
        self._root = root
        self._user, self._group = user.split(":")
        self._variables = variables
        for name in WRITABLE[:2]:
            # A volume has the owner of the folder that it covers.
            owner = (root / name).stat()
            volume = root.parent / f"{root.name}.{name.replace('/', '-')}"
            volume.mkdir()
            os.chown(volume, owner.st_uid, owner.st_gid)
            run(["mount", "--bind", str(volume), str(root / name)])
        run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "tmp")])
        run(["mount", "-o", "remount,ro", str(root)])

    def command(self, folder: str, arguments: list[str]) -> list[str]:
        """The command that runs ``arguments`` inside, without any capability."""
        entered = ["setpriv", f"--reuid={self._user}", f"--regid={self._group}", "--clear-groups"]
        entered += ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
        script = f'cd {shlex.quote(folder)} && exec "$@"'
        return ["chroot", str(self._root), *entered, "/bin/sh", "-c", script, "sh", *arguments]

    def ask(self, folder: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end."""
        return subprocess.run(
            self.command(folder, arguments),
            check=False,
            timeout=TIMEOUT,
            env=self._variables,
            capture_output=True,
            text=True,
        )

    def start(self, folder: str, arguments: list[str], output: int | None = None) -> subprocess.Popen[bytes]:
        """Start a command inside."""
        return subprocess.Popen(self.command(folder, arguments), env=self._variables, stdout=output)


def serve_and_stop(image: ContainerLike, stage: Stage, folder: str) -> None:
    """Serve with the image's own command, ask its health check, try to write, stop it. Raises AssertionError."""
    arguments = [*json.loads(last(stage, "ENTRYPOINT")), *json.loads(last(stage, "CMD"))]
    check = json.loads(last(stage, "HEALTHCHECK").partition("CMD ")[2])
    process = image.start(folder, arguments)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while (seen := image.ask(folder, check)).returncode != 0:
            assert process.poll() is None and time.monotonic() < deadline, seen.stderr
            time.sleep(0.2)
        print("the health check succeeds; the process has:")
        assert (
            image.ask(folder, ["sh", "-c", "touch /data/mine /var/lib/mcp-adapter/mine /tmp/mine"]).returncode
            == 0
        )
        for place in ("/", "/opt/adapter", "/etc/mcp-adapter", "/usr/local/bin"):
            assert image.ask(folder, ["touch", f"{place}/mine"]).returncode != 0, place
        status = Path(f"/proc/{process.pid}/status").read_text()
        print(
            "\n".join(
                line
                for line in status.splitlines()
                if re.match("Uid|Gid|Cap(Eff|Bnd)|NoNewPrivs|VmHWM", line)
            )
        )
        process.send_signal(signal.Signals[last(stage, "STOPSIGNAL")])
        assert process.wait(START_TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()


def _container_variables(build: ImageBuild, port: int) -> dict[str, str]:
    return {
        **build.environment,
        "MCP_ADAPTER_TOKEN": "a-long-random-text",
        # As pip reaches an index from there, so does npm.
        "NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt",
        "ADAPTER_CORE__HOST": "127.0.0.1",
        "ADAPTER_CORE__PORT": str(port),
    }


def wrap_fetched(image: ContainerLike, folder: str, port: str) -> None:
    """Wrap a server that npx fetches, with its cache on the volume, until its tools are told. Raises AssertionError."""
    command = ["mcp-adapter", "wrap", "--", "npx", "-y", SERVER]
    began = time.monotonic()
    process = image.start(folder, command, subprocess.PIPE)
    reaper = threading.Timer(FETCH_TIMEOUT, process.kill)
    reaper.start()
    try:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line.decode())
            if "Stop with Ctrl-C" in told[-1]:
                break
        assert "echo" in "".join(told), told
        print(f"wrap -- npx -y {SERVER} serves on port {port} after {time.monotonic() - began:.0f} s")
        process.send_signal(signal.SIGTERM)
        process.wait(START_TIMEOUT)
    finally:
        reaper.cancel()
        process.kill()
        process.wait()


def build_and_serve(base: Path, place: Path, extras: str | None) -> int:
    """Build all stages below ``place``, and run both images."""
    make_base(base)
    build = ImageBuild(base, place, {} if extras is None else {"EXTRAS": extras})
    build.fill_context()
    for stage in stages((ROOT / "deploy" / "Dockerfile").read_text()):
        if not stage.name:
            # That of a build without a target, which is slim again.
            continue
        root = build.build(stage)
        if stage.name in IMAGES:
            run_image(build, root, stage)
    print("the steps work, and both images serve as their user on a file system that they cannot write")
    return 0


def run_image(build: ImageBuild, root: Path, stage: Stage) -> None:
    """Check settings, serve and stop in one image. Raises AssertionError."""
    shutil.copy(ROOT / "deploy" / "config.yaml", root / "etc/mcp-adapter/config.yaml")
    size = subprocess.run(["du", "-smc", *root.glob("opt/*")], check=True, capture_output=True, text=True)
    print(f"{stage.name}: above the base {size.stdout.split()[-2]} MiB in /opt")
    port = free_port()
    image = ContainerLike(root, last(stage, "USER"), _container_variables(build, port))
    print(image.ask(build.folder, ["mcp-adapter", "--version"]).stdout, end="")
    checked = image.ask(build.folder, ["mcp-adapter", "check", "--config", "/etc/mcp-adapter/config.yaml"])
    print(checked.stdout, checked.stderr, end="")
    assert checked.returncode == 0
    serve_and_stop(image, stage, build.folder)
    if stage.name == "full":
        for program in ("node", "npm", "npx", "uv", "uvx"):
            asked = image.ask(build.folder, [program, "--version"])
            print(f"{program}: {asked.stdout.strip()}")
            assert asked.returncode == 0, asked.stderr
        if image.ask(build.folder, ["npm", "view", SERVER, "version"]).returncode == 0:
            wrap_fetched(image, build.folder, str(port))


def main() -> int:
    """Do all in a mount namespace of its own, so that nothing stays mounted."""
    parser = argparse.ArgumentParser(prog="python -m tests.image")
    parser.add_argument("base", type=Path)
    parser.add_argument("--extras")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.place is None:
        # The mounts end with their namespace. So nothing is deleted here but the folder that they began in.
        place = tempfile.mkdtemp()
        again = [sys.executable, "-m", "tests.image", *sys.argv[1:], "--place", place]
        try:
            return subprocess.run(["unshare", "--mount", *again], check=False, cwd=ROOT).returncode
        finally:
            Path(place).rmdir()
    arguments.base.mkdir(parents=True, exist_ok=True)
    # Overlays cannot lie above another overlay, which a folder for temporary files may be on.
    run(["mount", "-t", "tmpfs", "tmpfs", str(arguments.place)])
    return build_and_serve(arguments.base.absolute(), arguments.place, arguments.extras)


if __name__ == "__main__":
    sys.exit(main())

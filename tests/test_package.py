"""The package as others get it: built from what the repository tracks, and installed away from it."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
import tomllib
import venv
import zipfile
from contextlib import suppress
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from readme_renderer import markdown

from deploy.registry import NAME
from deploy.sbom import OF_DEVELOPERS, document
from tests.e2e.processes import answers, start
from tests.e2e.provision import node
from tests.e2e.provision import venv as venv_of
from tests.made_once import made_once
from tests.ports import free_port

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "adapter/edge/console/page/vendor"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Source"]
TIMEOUT = 120.0


class Built(NamedTuple):
    """The files of a build, and the metadata in the wheel."""

    wheel: Path
    sdist: Path
    metadata: Message


def tracked() -> list[str]:
    return subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).strip("\0").split("\0")


def ran(*command: str | Path, place: Path, **variables: str) -> str:
    """The output of a command that must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=place,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def build(place: Path) -> None:
    """Build the sdist of a copy of the tracked files, and the wheel of that sdist."""
    for name in tracked():
        if (ROOT / name).exists() and not name.startswith(("docs/images/", "tests/e2e/")):
            (place / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / "sources" / name, follow_symlinks=False)
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    ran(*command, place / "dist", place / "sources", place=place)
    shutil.rmtree(place / "sources")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both, and the metadata."""
    place = made_once(tmp_path_factory, "package", build) / "dist"
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    return Built(wheel, sdist, metadata)


@pytest.mark.deep
def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    """Every tracked file of the package is in it, but for those that nobody reads while it runs."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    renewing = ("refresh.sh", "package.json", "package-lock.json")
    # The last one is what pages of the documentation are written from.
    left_out = {*(f"{VENDOR.relative_to(ROOT)}/{name}" for name in renewing), "adapter/error_guide.yaml"}
    assert names == {name for name in tracked() if name.startswith("adapter/")} - left_out
    assert "adapter/py.typed" in names


@pytest.mark.deep
def test_the_wheel_has_the_licence_of_everything_in_it(built: Built) -> None:
    """Each licence and notice beside a file of others is among the licences, and the expression names each kind."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = [name for name in archive.namelist() if "/licenses/" in name]
        texts = {Path(name).name: archive.read(name).decode() for name in names}
    beside = {path.name for path in VENDOR.iterdir() if path.suffix in (".LICENSE", ".NOTICE")}
    assert set(texts) == {"LICENSE"} | beside
    assert {Path(name).name for name in built.metadata.get_all("License-File", [])} == set(texts)
    table = (VENDOR / "README.md").read_text()
    kinds = set(re.findall(r"\b(?:MIT|OFL-1\.1|Apache-2\.0|BSD-3-Clause)\b", table)) | {"Apache-2.0"}
    assert set(built.metadata["License-Expression"].split(" AND ")) == kinds


def test_every_file_of_others_has_its_licence() -> None:
    """A library that the page ships is named in the table beside it, with a licence text that is there."""
    shipped = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".woff2")}
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|", (VENDOR / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == shipped
    for name, licence in rows:
        texts = re.findall(r"`([^`]+)`", licence)
        assert texts and all((VENDOR / text).is_file() for text in texts), name


@pytest.mark.deep
def test_the_metadata_says_where_it_runs_and_where_it_is_kept(built: Built) -> None:
    """Readers of an index see the system, the types, the versions of Python, who made it, and five links."""
    classifiers = built.metadata.get_all("Classifier", [])
    assert {"Operating System :: POSIX", "Typing :: Typed"} <= set(classifiers)
    assert not [each for each in classifiers if "Windows" in each or "OS Independent" in each]
    assert built.metadata["Requires-Python"] == ">=3.11"
    assert "model-context-protocol" in built.metadata["Keywords"].split(",")
    links = dict(url.split(", ") for url in built.metadata.get_all("Project-URL", []))
    assert set(links) == {"Homepage", "Source", "Documentation", "Changelog", "Issues"}
    assert all(link.startswith(REPOSITORY) for link in links.values())
    assert built.metadata["Author"]


@pytest.mark.deep
def test_the_readme_can_be_read_on_an_index(built: Built) -> None:
    """It renders without diagrams as code, and each link and image leads to a file of this version."""
    rendered = markdown.render(str(built.metadata.get_payload()), variant="GFM")
    assert rendered is not None
    # The MCP registry looks for it there.
    assert f"<!-- mcp-name: {NAME} -->" in str(built.metadata.get_payload())
    assert "mermaid" not in rendered and "flowchart" not in rendered
    targets = re.findall(r'(?:href|src)="([^"]+)"', rendered)
    relative = [target for target in targets if not target.startswith(("https://", "http://", "#"))]
    assert relative == []
    version = built.metadata["Version"]
    ours = [target for target in targets if target.startswith(REPOSITORY)]
    assert len(ours) > 30
    for target in ours:
        kind, tag, path = target.removeprefix(f"{REPOSITORY}/").split("/", 2)
        assert tag == f"v{version}" and (ROOT / path.partition("#")[0]).exists(), target
        assert kind == ("raw" if path.endswith(".png") else "blob")


@pytest.mark.deep
def test_the_sdist_holds_what_a_build_needs(built: Built) -> None:
    """The package, its notes and ``deploy/``: no tests, pages, caches or files of one machine."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {""}
        files = {name for name in names if not any(other.startswith(f"{name}/") for other in names)}
    beside = {name for name in files if not name.startswith(("adapter/", "deploy/"))}
    kept = {
        "CHANGELOG.md",
        "LICENSE",
        "MANIFEST.in",
        "README.md",
        "SECURITY.md",
        "pyproject.toml",
        "setup.py",
    }
    info = {name for name in beside if name.startswith("mcp_file_adapter.egg-info/")}
    assert beside - info == kept | {"PKG-INFO", "setup.cfg"}
    assert files - beside <= set(tracked())


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``mcp-adapter`` of a fresh environment with the wheel and, by their folder, the packages that it needs."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    ran(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--quiet",
        built.wheel,
        place=place,
    )
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    # A folder in a .pth file is searched, but its own .pth files, one of which names this repository, are not read.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return place / "venv" / "bin" / "mcp-adapter"


@pytest.mark.deep
async def test_the_wheel_works_without_its_sources(installed: Path, tmp_path: Path) -> None:
    """The command tells its version, checks settings, and a call passes through its demo."""
    place, python = tmp_path, installed.with_name("python")
    where = ran(python, "-c", "import adapter; print(adapter.__file__)", place=place).strip()
    assert Path(where).is_relative_to(installed.parents[1])
    version = ran(installed, "--version", place=place).split()[1]
    found = ran(
        python, "-c", "from importlib.metadata import version as v; print(v('mcp-file-adapter'))", place=place
    )
    assert found.strip() == version
    (place / "config.yaml").write_text("servers: [{id: one, upstream: {url: 'http://127.0.0.1:9/mcp'}}]\n")
    assert "config.yaml is fine: 1 server" in ran(installed, "check", place=place)

    port = free_port()
    demo = await start([installed, "demo", "--port", str(port)], place / "demo.log")
    try:
        await answers(f"http://127.0.0.1:{port}/readyz", demo)
        url = f"http://127.0.0.1:{port}/explorer/demo/tools/query_orders/call"
        async with aiohttp.ClientSession() as http, http.post(url, json={"customer": "C-001"}) as answer:
            assert answer.status == 200, await answer.text()
            assert "C-001" in await answer.text()
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/explorer/") as page:
            assert page.status == 200
    finally:
        await demo.stop()


MOST_PACKAGES, MOST_MEGABYTES = 30, 45
"""Of an installation for a plain relay, itself included and without bytecode."""


@pytest.mark.deep
def test_a_plain_installation_is_small(built: Built, tmp_path: Path) -> None:
    """Without extras few packages come; it checks settings, and a command that needs more names the line to type."""
    there = tmp_path / "there"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    ran(*pip, "--target", there, built.wheel, place=tmp_path)
    packages = [*there.glob("*.dist-info")]
    size = sum(path.lstat().st_size for path in there.rglob("*") if path.is_file())
    assert len(packages) <= MOST_PACKAGES, sorted(each.name for each in packages)
    assert size <= MOST_MEGABYTES * 1_000_000, size
    (tmp_path / "config.yaml").write_text("servers: [{id: one, upstream: {url: 'http://127.0.0.1:9/mcp'}}]\n")
    # Isolated and without this environment's packages: what is not in the folder is not there.
    program = f"import sys; sys.path.insert(0, {str(there)!r}); from adapter.__main__ import main; main()"
    alone: list[str | Path] = [sys.executable, "-ISc", program]
    assert "config.yaml is fine" in ran(*alone, "check", place=tmp_path)
    done = subprocess.run(
        [*alone, "tools", "http://127.0.0.1:9/mcp"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "tools needs the extra client of mcp-file-adapter: " in done.stderr
    assert f"'mcp-file-adapter[client] @ {built.wheel.as_uri()}'" in done.stderr


COLD_TIMEOUT = 240.0
CERTIFICATES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE")


@pytest.mark.deep
def test_a_cold_machine_serves_by_one_line(built: Built, tmp_path: Path) -> None:
    """uvx and npx fetch what is needed into an empty home, and a server that npx starts is served."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    uvx = venv_of("release").with_name("uvx")
    environment = {
        "HOME": str(home),
        "PATH": f"{node().parent}:/usr/bin:/bin",
        # How this machine knows the indexes; none of them is another home.
        **{name: value for name, value in os.environ.items() if name in CERTIFICATES},
    }
    command: list[str | Path] = [uvx, "--python", sys.executable, "--from", built.wheel, "mcp-file-adapter"]
    began = time.monotonic()
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [*command, "wrap", "--port", "0", "--", "npx", "-y", "@modelcontextprotocol/server-everything"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        late = threading.Timer(COLD_TIMEOUT, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        try:
            assert process.stdout is not None
            told = ""
            while "Stop with Ctrl-C." not in told and (line := process.stdout.readline()):
                told += line
            print(f"served after {time.monotonic() - began:.1f} s")
            assert "echo" in told, told + (tmp_path / "errors").read_text()[-2000:]
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT)
        finally:
            late.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_image_has_a_version_of_every_package() -> None:
    """Each declared dependency is among the constraints of the image, in a version that the declaration allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(each for name in extras if name not in OF_DEVELOPERS for each in extras[name]),
    ]
    lines = (ROOT / "deploy/constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    for requirement in map(Requirement, declared):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_the_bill_of_materials_is_whole_and_valid() -> None:
    """It has each constraint of the image and each library of the page, and keeps the schema of CycloneDX."""
    text = document()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    told = json.loads(text)
    components = {each["bom-ref"]: each for each in told["components"]}
    lines = (ROOT / "deploy/constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    vendored = json.loads((VENDOR / "package.json").read_text())["dependencies"]
    locked = json.loads((VENDOR / "package-lock.json").read_text())["packages"].keys() - {""}
    npm = {name.replace("node_modules", "npm") for name in locked}
    assert set(components) == {f"pypi/{name}" for name in pinned} | npm
    for name, version in vendored.items():
        assert components[f"npm/{name}"]["version"] == version and components[f"npm/{name}"]["licenses"]
    depended = {
        ref: set(entry.get("dependsOn", ())) for entry in told["dependencies"] for ref in [entry["ref"]]
    }
    assert {"pypi/aiohttp", "npm/marked"} <= depended["mcp-file-adapter"]
    assert "pypi/multidict" in depended["pypi/aiohttp"]
    assert document() == text

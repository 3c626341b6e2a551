"""The extras of the package: the libraries that only some commands and settings need, and how to get them here."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "mcp-file-adapter"

MODULES: Mapping[str, tuple[str, ...]] = {
    "client": ("mcp", "mcp_types", "httpx2"),
    "hosted": ("jsonschema_rs",),
    "http": ("aiohttp", "yarl"),
    "mongodb": ("pymongo", "bson"),
    "mysql": ("aiomysql", "pymysql"),
    "oauth": ("cryptography", "jwt"),
    "postgres": ("asyncpg",),
    "redis": ("redis", "hiredis"),
    "telemetry": ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry", "google"),
}
"""What each brings to be imported; by the first one is known whether it is installed."""


def extra_of(missing: ModuleNotFoundError) -> str | None:
    """The extra that brings a module which was not found, None for one that none brings."""
    top = (missing.name or "").partition(".")[0]
    return next((extra for extra, names in MODULES.items() if top in names), None)


def is_installed(extra: str) -> bool:
    """Tell whether the libraries of an extra are here."""
    try:
        return find_spec(MODULES[extra][0]) is not None
    except ModuleNotFoundError:
        return False


def missing_extras(*extras: str) -> str | None:
    """The sentence for people about those that are not installed, None if all are."""
    missing = [extra for extra in extras if not is_installed(extra)]
    if not missing:
        return None
    named = f"extra{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
    return f"needs the {named} of {PACKAGE}: {install_line(*missing)}"


def install_line(*extras: str) -> str:
    """The command line that adds extras to this installation, whoever made it; those that are here stay."""
    editable, package = _installed_as(*extras)
    prefix = Path(sys.prefix)
    if editable:
        return f"{_pip_install(prefix)} -e {package}"
    return _by_tool(prefix, package) or f"{_pip_install(prefix)} {package}"


def own_command() -> list[str]:
    """The words with which another program, from any folder, starts this one as it was installed."""
    line = _by_tool(Path(sys.prefix), _installed_as()[1]) or ""
    if line.endswith("…"):
        # Late: it takes longer to import than ``--help`` may take for all.
        import shutil

        program, *words = shlex.split(line)[:-1]
        return [shutil.which(program) or program, *words]
    script = Path(sys.executable).with_name("mcp-adapter")
    return [str(script)] if script.exists() else [sys.executable, "-m", "adapter"]


def typed_command() -> str:
    """The words with which a person starts this copy from a shell; uvx and ``pipx run`` put none on the PATH."""
    line = _by_tool(Path(sys.prefix), _installed_as()[1]) or ""
    return line.removesuffix(" …") if line.endswith("…") else "mcp-adapter"


def overlap() -> str | None:
    """The sentence about other packages with files in the folder of this one, None if there are none.

    A wheel cannot refuse to be installed over another one, and the later one wins.
    """
    from importlib.metadata import packages_distributions

    folder = __name__.partition(".")[0]
    others = {*packages_distributions().get(folder, ())} - {PACKAGE}
    if not others:
        return None
    package = _installed_as()[1]
    return (
        f"{' and '.join(sorted(others))} also installs files into {folder}/, over those of {PACKAGE} or below them. "
        f"Install it by itself: pipx install {package}, or uv tool install {package}"
    )


def _installed_as(*extras: str) -> tuple[bool, str]:
    """Tell whether the package is only linked to its sources, and name it for an installer with what is here."""
    names = {*extras, *filter(is_installed, MODULES)}
    wanted = f"[{','.join(sorted(names))}]" if names else ""
    editable, source = _origin()
    if editable:
        return True, shlex.quote(f"{source}{wanted}")
    return False, shlex.quote(f"{PACKAGE}{wanted} @ {source}" if source else f"{PACKAGE}{wanted}")


def _by_tool(prefix: Path, package: str) -> str | None:
    """The line for an environment that uv or pipx keeps, None for any other."""
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install --force {package}"
    if any(part.startswith(("archive-v", "environments-v")) for part in prefix.parts[-3:]):
        # Made by uvx for one command, in its cache.
        return f"uvx --from {package} {PACKAGE} …"
    if (prefix / "pipx_metadata.json").exists():
        if prefix.parent.name == "venvs":
            return f"pipx install --force {package}"
        return f"pipx run --spec {package} {PACKAGE} …"
    return None


def _origin() -> tuple[bool, str | None]:
    """Tell whether the package is only linked to its sources, and the place it came from if that was no index."""
    # Late: nothing but an error asks for it, and it brings a parser of mail.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    if not text:
        return False, None
    told = json.loads(text)
    if told.get("dir_info", {}).get("editable"):
        return True, str(told["url"]).removeprefix("file://")
    return False, str(told["url"])


def _pip_install(prefix: Path) -> str:
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(str(prefix))}"
    if os.environ.get("VIRTUAL_ENV") == str(prefix):
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"

"""``python -m deploy.sbom > sbom.cdx.json``: what the adapter consists of, as CycloneDX 1.6 in JSON.

Components are what the console's page ships of others, from the lock file beside it, and every package of
``deploy/constraints.txt``, which the image installs. Licences and dependencies are read from this environment, which
needs all extras: a package that is missing here is named without them. The same sources and environment give the same
document, without time or serial number.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "adapter/edge/console/page/vendor"
LICENSES = LicenseFactory()
OF_DEVELOPERS = {"all", "dev", "docs"}
"""Extras that no image has, and the one that is all others."""

LONGEST_LICENSE = 200
"""Some packages put the whole text into the field of its name."""


def bom() -> Bom:
    """The components, and who depends on whom."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = Bom()
    found.metadata.component = root = _root(project)
    packages = dict(_packages())
    vendored = [*_vendored()]
    for component in (*packages.values(), *vendored):
        found.components.add(component)
    declared = [*project["dependencies"], *_of_extras(project["optional-dependencies"])]
    found.register_dependency(root, [*_among(declared, packages), *vendored])
    for name, component in packages.items():
        found.register_dependency(component, _among(_requirements(name), packages))
    return found


def _root(project: dict[str, Any]) -> Component:
    (version,) = re.findall(r'^VERSION = "(.+)"', (ROOT / "adapter/version.py").read_text(), re.MULTILINE)
    name = project["name"]
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=name,
        description=project["description"],
        licenses=[LICENSES.make_with_expression(project["license"])],
        purl=PackageURL("pypi", name=name, version=version),
    )


def _of_extras(extras: dict[str, list[str]]) -> Iterator[str]:
    for name, requirements in extras.items():
        if name not in OF_DEVELOPERS:
            yield from requirements


def _packages() -> Iterator[tuple[str, Component]]:
    for line in (ROOT / "deploy/constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        name, version = canonicalize_name(pin.name), str(pin.specifier).removeprefix("==")
        yield (
            name,
            Component(
                name=name,
                version=version,
                bom_ref=f"pypi/{name}",
                licenses=_licences(name),
                purl=PackageURL("pypi", name=name, version=version),
            ),
        )


def _licences(name: str) -> Iterable[License]:
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if "License-Expression" in said:
        return [LICENSES.make_from_string(said["License-Expression"])]
    classified = [
        each.rpartition(" :: ")[2] for each in said.get_all("Classifier", []) if "License ::" in each
    ]
    if classified:
        return [LICENSES.make_with_name(classified[0])]
    text = "".join(said.get_all("License", []))
    return [LICENSES.make_from_string(text)] if 0 < len(text) < LONGEST_LICENSE else []


def _requirements(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def _among(requirements: Iterable[str], packages: dict[str, Component]) -> list[Component]:
    """The components that requirements name. One of an extra counts if its package is there: somebody asked for it."""
    parsed = map(Requirement, requirements)
    asked = {canonicalize_name(each.name) for each in parsed if each.marker is None or _holds(each)}
    return [packages[name] for name in sorted(asked & packages.keys())]


def _holds(requirement: Requirement) -> bool:
    assert requirement.marker is not None, "one without a marker always holds"
    return "extra ==" in str(requirement.marker) or requirement.marker.evaluate()


def _vendored() -> Iterator[Component]:
    """The packages of npm behind what the page ships: those of its files, and those that these have built in."""
    locked = json.loads((PAGE / "package-lock.json").read_text())["packages"]
    table = re.findall(r"^\| `([^`]+)` \| ([\w@/.-]+)", (PAGE / "README.md").read_text(), re.MULTILINE)
    files = {name: PAGE / file for file, name in table}
    for place, entry in locked.items():
        if place:
            name = place.removeprefix("node_modules/")
            yield _of_npm(name, entry, files.get(name))


def _of_npm(name: str, entry: dict[str, str], file: Path | None) -> Component:
    group, _, bare = name.rpartition("/")
    shipped = "built into another library of" if file is None else f"{file.name} in"
    return Component(
        name=bare,
        group=group or None,
        version=entry["version"],
        bom_ref=f"npm/{name}",
        description=f"{shipped} {PAGE.relative_to(ROOT)}",
        licenses=[LICENSES.make_from_string(entry["license"])],
        purl=PackageURL("npm", group or None, bare, entry["version"]),
        hashes=() if file is None else [HashType(alg=HashAlgorithm.SHA_256, content=_digest(file))],
        external_references=[_archive(f"{name}/-/{bare}-{entry['version']}.tgz", entry["integrity"])],
    )


def _archive(path: str, integrity: str) -> ExternalReference:
    """The archive at npm's registry, with the digest that the lock file has for it."""
    algorithm, _, digest = integrity.partition("-")
    known = HashAlgorithm(algorithm.upper().replace("SHA", "SHA-"))
    return ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://registry.npmjs.org/{path}"),
        hashes=[HashType(alg=known, content=base64.b64decode(digest).hex())],
    )


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def document() -> str:
    """The same document for the same sources and environment."""
    found = json.loads(JsonV1Dot6(bom()).output_as_string())
    found.pop("serialNumber", None)
    found["metadata"].pop("timestamp", None)
    return json.dumps(found, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.write(f"{document()}\n")

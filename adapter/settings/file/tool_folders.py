"""``servers[].tools.directory``: tools in files of their own, read into the mappings that ``define`` would hold.

A folder with a ``config.yaml`` is a tool, and one without whose scripts include a handler; so is every other YAML
file. What such a file says is judged afterwards, like everything in the settings file itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from adapter.settings.file.yaml_text import interpolated, read_yaml
from adapter.settings.problems import Problem, SettingsError

CONFIGS = ("config.yaml", "config.yml")
"""The file that defines the tool of its folder."""

LARGEST_FILE = 1 << 20
"""Maximum size of a tool's file, in bytes."""

_YAML = (".yaml", ".yml")


class Conventions(NamedTuple):
    """The scripts of a folder that are found by their names."""

    handler: str | None
    input: str | None
    output: str | None


def conventions(names: Iterable[str]) -> Conventions:
    """Find the first Python file of each kind among ``names``, in the order of names.

    A handler has ``handler`` in its name; an input mapper is ``input.py`` or has ``input`` and
    ``validator``; an output mapper is ``output.py`` or has ``data`` and ``mapper``.
    """
    scripts = sorted(name for name in names if name.endswith(".py"))

    def first(fits: Callable[[str], bool]) -> str | None:
        return next((name for name in scripts if fits(name.removesuffix(".py").lower())), None)

    return Conventions(
        handler=first(lambda stem: "handler" in stem),
        input=first(lambda stem: stem == "input" or ("input" in stem and "validator" in stem)),
        output=first(lambda stem: stem == "output" or ("data" in stem and "mapper" in stem)),
    )


def default_name(path: Path) -> str:
    """The default name of a tool at ``path`` below the directory; empty if the path has no usable character."""
    parts = (re.sub(r"[^A-Za-z0-9_-]+", "-", part).strip("-").lower() for part in path.parts)
    return "-".join(part for part in parts if part)


class FoundTool(NamedTuple):
    """``place`` is the file, or the folder of a tool without one, from where the settings file lies."""

    place: str
    said: dict[str, Any]


def add_tools_of_folders(tree: dict[str, Any], base: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Puts the tools of each server's ``tools.directory`` behind those of its ``tools.define``.

    ``tree`` is the settings as they were written, ``base`` the folder of their file. Returns which file stands
    behind which place of the tree, as in ``{"servers[0].tools.define[2]": "tools/pay/config.yaml"}``. Raises
    SettingsError with all problems of all directories.
    """
    files: dict[str, str] = {}
    problems: list[Problem] = []
    for place, tools, directory, define in _directories(tree):
        reading = _Reading(Path(directory.strip()), base, environ)
        found = reading.tools(f"{place}.directory")
        problems += [*reading.problems, *_repeated(define, found, f"{place}.define")]
        tools["define"] = [*define, *(tool.said for tool in found)]
        files |= {f"{place}.define[{at}]": tool.place for at, tool in enumerate(found, len(define))}
    if problems:
        raise SettingsError(problems)
    return files


def _directories(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str, list[Any]]]:
    """Every section ``tools`` with a directory: its place, itself, the directory and the list of ``define``.

    What has another shape is left to the models, which refuse it.
    """
    servers = tree.get("servers")
    for index, server in enumerate(servers if isinstance(servers, list) else ()):
        tools = server.get("tools") if isinstance(server, dict) else None
        if not isinstance(tools, dict):
            continue
        directory, define = tools.get("directory"), tools.get("define") or []
        if isinstance(directory, str) and directory.strip() and isinstance(define, list):
            yield f"servers[{index}].tools", tools, directory, define


def _repeated(define: list[Any], found: list[FoundTool], place: str) -> list[Problem]:
    """Tools of the directory whose name another tool of the same server has."""
    named = [
        (f"{place}[{at}]", entry.get("name")) for at, entry in enumerate(define) if isinstance(entry, dict)
    ]
    seen = {name: where for where, name in reversed(named) if isinstance(name, str)}
    problems = []
    for where, said in found:
        if isinstance(name := said["name"], str) and (first := seen.setdefault(name, where)) != where:
            problems.append(Problem(where, f"{name} is already the name of the tool in {first}"))
    return problems


@dataclass(slots=True)
class _Reading:
    """One walk through a directory. Paths of its methods are relative to the directory."""

    directory: Path
    base: Path
    environ: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)
    _found: list[FoundTool] = field(default_factory=list)

    def tools(self, place: str) -> list[FoundTool]:
        """Every tool, in each folder its files first, by name. ``place`` is where the settings name the directory."""
        if not self._at(Path()).is_dir():
            self.problems.append(Problem(place, f"there is no directory {self.directory}"))
            return []
        self._walk(Path(), ())
        if not self._found and not self.problems:
            self.problems.append(Problem(place, f"{self.directory} contains no tool"))
        return self._found

    # --- finding ----------------------------------------------------------------------------------------------

    def _walk(self, folder: Path, above: tuple[Path, ...]) -> None:
        real = self._at(folder).resolve()
        if real in above:
            self._refuse(folder, "is a link to a folder that contains it")
            return
        if "#" in str(self.directory / folder):
            self._refuse(folder, "has a # in its name, which references to scripts cannot contain")
            return
        folders, files = self._entries(folder)
        self._read_folder(folder, files)
        for entry in folders:
            self._walk(entry, (*above, real))

    def _entries(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """The relevant folders and files in a folder, without private ones and without links that lead out of it."""
        try:
            names = sorted(entry.name for entry in self._at(folder).iterdir())
        except OSError as error:
            self._refuse(folder, f"cannot be read: {error.strerror}")
            return [], []
        folders: list[Path] = []
        files: list[Path] = []
        for entry in (folder / name for name in names if not name.startswith((".", "_"))):
            is_folder = self._at(entry).is_dir()
            if not is_folder and entry.suffix not in (*_YAML, ".py"):
                continue
            if not self._at(entry).resolve().is_relative_to(self._at(Path()).resolve()):
                self._refuse(entry, f"is a link that leads out of {self.directory}")
            else:
                (folders if is_folder else files).append(entry)
        return folders, files

    def _read_folder(self, folder: Path, files: list[Path]) -> None:
        configs = [file for file in files if file.name in CONFIGS]
        others = [file for file in files if file.suffix in _YAML and file.name not in CONFIGS]
        scripts = conventions(file.name for file in files)
        if folder == Path() or not (configs or scripts.handler):
            for config in configs:
                self._refuse(
                    config, "must be in a separate folder, because the folder gives the tool its name"
                )
            for file in others:
                self._read_tool(file.with_suffix(""), folder, file, Conventions(None, None, None))
        elif len(configs) > 1:
            self._refuse(configs[1], f"is next to {configs[0].name}: keep only one of them")
        elif configs:
            # Any other YAML in such a folder is something that the tool's scripts read.
            self._read_tool(folder, folder, configs[0], scripts)
        elif others:
            self._refuse(
                others[0],
                f"its folder is already a tool because of {scripts.handler}: rename this file "
                f"to {CONFIGS[0]}",
            )
        else:
            self._read_tool(folder, folder, None, scripts)

    # --- one tool ---------------------------------------------------------------------------------------------

    def _read_tool(self, path: Path, folder: Path, file: Path | None, scripts: Conventions) -> None:
        """Read one tool. ``path`` gives its name, ``folder`` has its scripts."""
        said = {} if file is None else self._written(file)
        if said is None:
            return
        if _unset(said.get("name")):
            said["name"] = default_name(path)
        if said["name"] == "":
            self._refuse(file or path, "needs a name: its path has no letter or digit for one")
            return
        _fill(said, scripts)
        self._anchor(said, folder)
        self._found.append(FoundTool(self._place(file or path), said))

    def _written(self, file: Path) -> dict[str, Any] | None:
        """The content of a tool's file, or None if it cannot be used."""
        path, place = self._at(file), self._place(file)
        if not path.is_file():
            self._refuse(file, "cannot be read as a file")
            return None
        if path.stat().st_size > LARGEST_FILE:
            self._refuse(file, "is larger than 1 MiB, the maximum size for the file of a tool")
            return None
        try:
            said: dict[str, Any] = interpolated(read_yaml(path, "keys of a tool such as use"), self.environ)
        except SettingsError as refused:
            self.problems += [
                Problem(place if where == str(path) else f"{place}: {where}", sentence)
                for where, sentence in refused.problems
            ]
            return None
        return said

    def _anchor(self, said: dict[str, Any], folder: Path) -> None:
        """Make references to scripts in the tool's own folder relative to the settings file."""

        def anchored(reference: Any) -> Any:
            if not isinstance(reference, str):
                return reference
            named, mark, function = reference.partition("#")
            own = named.startswith(("./", "../")) or (named != "" and self._at(folder / named).is_file())
            return self._place(folder / named, "./") + mark + function if own else reference

        mappers, auth = said.get("mappers"), said.get("auth")
        if "handler" in said:
            said["handler"] = anchored(said["handler"])
        if isinstance(mappers, dict):
            said["mappers"] = {key: anchored(script) for key, script in mappers.items()}
        if isinstance(said.get("middleware"), list):
            said["middleware"] = [anchored(script) for script in said["middleware"]]
        if isinstance(auth, dict) and "plugin" in auth:
            said["auth"] = {**auth, "plugin": anchored(auth["plugin"])}

    # --- paths ------------------------------------------------------------------------------------------------

    def _at(self, path: Path) -> Path:
        return self.base / self.directory / path

    def _place(self, path: Path, relative: str = "") -> str:
        """The path relative to the settings file, with the prefix ``relative``; below an absolute directory, the
        absolute path.
        """
        whole = self.directory / path
        return whole.as_posix() if whole.is_absolute() else relative + whole.as_posix()

    def _refuse(self, path: Path, sentence: str) -> None:
        self.problems.append(Problem(self._place(path), sentence))


def _fill(said: dict[str, Any], scripts: Conventions) -> None:
    """Add the scripts that were found by their names, unless the tool sets them; a tool with a statement gets no
    handler.
    """
    if scripts.handler and _unset(said.get("handler")) and _unset(said.get("use")):
        said["handler"] = f"./{scripts.handler}"
    mappers = {} if said.get("mappers") is None else said["mappers"]
    if isinstance(mappers, dict):
        found = {"input": scripts.input, "output": scripts.output}
        missing = {key: f"./{name}" for key, name in found.items() if name and _unset(mappers.get(key))}
        if missing:
            said["mappers"] = {**mappers, **missing}


def _unset(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())

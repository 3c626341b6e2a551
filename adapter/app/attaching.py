"""Files that hosts attach to calls: the tools that take them, and how their definitions say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import BadJson
from adapter.relay.files.artifact_members import ReadList, read_list
from adapter.relay.files.attachments import AttachedFiles, AttachmentStage
from adapter.relay.sessions.session_map import ClientFact
from adapter.relay.stages import Call
from adapter.rules.clients.hosts import attaches_files
from adapter.rules.files.attached_files import FileParameter, StaysHandle, declared, parameter_of
from adapter.rules.tools.visibility import ShapedDefinition, ShapeTool
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings


def file_parameters(settings: Settings, entry: ServerSettings) -> dict[str, FileParameter]:
    """The parameters in which hosts put files, by the tools that take them."""
    if entry.hosts.openai_file_params == "off" or not settings.uploads.enabled:
        return {}
    return {
        tool: parameter
        for adapter in entry.consumers
        if (parameter := parameter_of(adapter.file_path_argument)) is not None
        for tool in adapter.tools
    }


@dataclass(eq=False)
class Attaching:
    """The tools of one server to whose calls hosts may attach files. ``always``: all hosts understand that. ``read``
    has the list of tools read, by which it is learned which nested arguments are lifted.
    """

    parameters: Mapping[str, FileParameter]
    clients: ClientFact[Mapping[str, str]]
    always: bool
    read: ReadList | None = field(default=None, init=False)
    _lifted: dict[str, bool] = field(default_factory=dict, init=False)

    async def declares(self, call: Call) -> bool:
        """Tell whether the client of a call is told that it may attach files, and of files that tools wrote."""
        return self.always or attaches_files(await self.clients.of(call))

    def stage(self, tool: str, uri_scheme: str, files: AttachedFiles) -> AttachmentStage:
        """The stage of a tool that has a parameter."""
        return AttachmentStage(files, self.parameters[tool], uri_scheme, self._applies)

    async def _applies(self, call: Call) -> bool:
        """Tell whether a call's client may attach files, and a lifted parameter of its tool is the adapter's own. Where
        nothing is known of the tool, as after a restart, its list is read: hosts keep theirs for days.
        """
        tool = call.envelope.name or ""
        if not await self.declares(call):
            return False
        if not self.parameters[tool].lifted:
            return True
        if tool not in self._lifted:
            await read_list(self.read, call, tool)
        # Else what is usual is assumed.
        return self._lifted.get(tool, True)

    def learning(self, shape: ShapeTool) -> ShapeTool:
        """Return the function that shapes definitions, and learns from what it made which arguments are lifted."""
        if not any(parameter.lifted for parameter in self.parameters.values()):
            return shape

        def learned(name: str, definition: bytes) -> ShapedDefinition:
            shaped = shape(name, definition)
            parameter = self.parameters.get(name)
            if parameter is not None and parameter.lifted and shaped.raw is not None:
                # Callers may see differing definitions: an argument that is the tool's own for one is never taken.
                lifts = _declared(parameter, shaped.raw) is not shaped.raw
                self._lifted[name] = lifts and self._lifted.get(name, True)
            return shaped

        return learned

    @property
    def edits(self) -> dict[str, Callable[[bytes], bytes]]:
        """The edits of definitions for hosts that attach files, by tool."""
        return {tool: partial(_declared, parameter) for tool, parameter in self.parameters.items()}


def _declared(parameter: FileParameter, definition: bytes) -> bytes:
    """The definition with the parameter; itself where that stays a handle."""
    try:
        return declared(definition, parameter)
    except (StaysHandle, BadJson):
        return definition

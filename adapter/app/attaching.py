"""Files that hosts attach to calls: the tools that take them, and how their definitions say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import BadJson
from adapter.relay.files.attachments import AttachmentRule
from adapter.relay.sessions.client_names import ClientNames
from adapter.relay.stages import Call
from adapter.rules.clients.hosts import attaches_files
from adapter.rules.files.attached_files import FileParameter, StaysHandle, declared, parameter_of
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import UploadConsumer
from adapter.settings.servers.server import ServerSettings


def file_parameters(settings: Settings, entry: ServerSettings) -> dict[str, FileParameter]:
    """The parameters in which hosts put files, by the tools that take them."""
    if entry.hosts.openai_file_params == "off" or not settings.uploads.enabled:
        return {}
    return {
        tool: parameter
        for adapter in entry.adapters
        if isinstance(adapter, UploadConsumer)
        and (parameter := parameter_of(adapter.file_path_argument)) is not None
        for tool in adapter.tools
    }


@dataclass(eq=False)
class Attaching:
    """The tools of one server to whose calls hosts may attach files. ``always``: all hosts understand that."""

    server: str
    parameters: Mapping[str, FileParameter]
    names: ClientNames
    always: bool
    _taken: set[str] = field(default_factory=set, init=False)

    async def declares(self, call: Call) -> bool:
        """Tell whether the client of a call is told that it may attach files, and of files that tools wrote."""
        return self.always or attaches_files(await self.names.of(call))

    def rule(self, tool: str, uri_scheme: str) -> AttachmentRule:
        """The rule for the calls of a tool that has a parameter."""
        return AttachmentRule(self.server, self.parameters[tool], uri_scheme, self._taken)

    @property
    def edits(self) -> dict[str, Callable[[bytes], bytes]]:
        """The edits of definitions for hosts that attach files, by tool."""
        return {tool: partial(self._declared, tool) for tool in self.parameters}

    def _declared(self, tool: str, definition: bytes) -> bytes:
        self._taken.discard(tool)
        try:
            return declared(definition, self.parameters[tool])
        except (StaysHandle, BadJson):
            # Also an argument of the same name is the tool's own then.
            self._taken.add(tool)
            return definition

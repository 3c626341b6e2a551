"""``servers[].adapters[]``: tools that take or produce files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from adapter.settings.section import ByteSize, OptionalText, Section, Text, UriScheme
from adapter.settings.servers.policies import ToolDefaultsOverride, ToolPatterns

Tools = Annotated[list[Text], Field(min_length=1)]
Delivery = Literal["path", "file_uri", "base64", "data_uri", "url"]


class UploadConsumer(Section):
    """Tools with an argument that names files."""

    type: Literal["upload_consumer"]
    """`upload_consumer`: these tools take files."""
    tools: Tools
    """Names of the tools."""
    file_path_argument: Text
    """Argument that names the file or files; may be nested, as in `files[].path`."""
    uri_scheme: UriScheme = "upload://"
    """Scheme of handles in that argument."""
    uri_prefix: bool | None = None
    """True means `delivery: file_uri`; the name that remote-mcp-adapter uses."""
    delivery: Delivery = "path"
    """Form in which the tool gets the file."""
    max_inline_bytes: ByteSize = 1024**2
    """Maximum size of a file for `base64` and `data_uri`."""
    edits: bool | None = None
    """True: a file that the tool changes becomes a new artifact. False: tools only read, and get the stored file
    itself. Null: they get a copy.
    """
    allow_plain_paths: bool = False
    """Pass on text that is not a handle, instead of refusing it."""
    overrides: ToolDefaultsOverride = Field(default_factory=ToolDefaultsOverride)

    @property
    def form(self) -> Delivery:
        """The form in which the tool gets the file, under either name of the setting."""
        return "file_uri" if self.uri_prefix else self.delivery

    def _contradictions(self) -> Iterator[str]:
        if self.edits and self.form not in ("path", "file_uri"):
            yield (
                f"edits: true needs delivery path or file_uri; with {self.delivery} the changed file is in the tool's "
                "result: take it by an artifact_producer with output_locator.mode embedded"
            )


def _null_is_none(value: object) -> object:
    return "none" if value is None else value


class OutputLocator(Section):
    """Location of a produced file that is not at the requested path."""

    mode: Annotated[
        Literal["structured", "regex", "embedded", "resource", "none"], BeforeValidator(_null_is_none)
    ] = "none"
    """Part of the result that names or contains the file."""
    output_path_key: OptionalText = None
    """Dotted path in structuredContent, for `structured`."""
    output_path_regexes: ToolPatterns = Field(default_factory=list)
    """Expressions for `regex`; an empty list uses the built-in ones."""
    every: bool = False
    """Keep each file that a result names, for `regex` and `structured`; false keeps the first."""


class ArtifactProducer(Section):
    """Tools that write a file."""

    type: Literal["artifact_producer"]
    """`artifact_producer`: these tools produce files."""
    tools: Tools
    """Names of the tools."""
    output_path_argument: OptionalText = None
    """Argument that tells the tool where to write; null if there is none."""
    output_locator: OutputLocator = Field(default_factory=OutputLocator)
    persist: bool = True
    """Keep the file; false does not change the result."""
    expose_as_resource: bool = True
    """List these artifacts as resources."""
    allow_raw_output: bool | None = Field(
        default=None, validation_alias=AliasChoices("allow_raw_output", "include_raw_output")
    )
    """Embed the content in the result too; null uses `core.defaults.allow_raw_output`."""
    required: bool = False
    """Fail the call if the file cannot be captured."""
    overrides: ToolDefaultsOverride = Field(default_factory=ToolDefaultsOverride)

    def _contradictions(self) -> Iterator[str]:
        locator = self.output_locator
        if (
            self.output_path_argument is None
            and locator.mode == "structured"
            and locator.output_path_key is None
        ):
            yield "output_locator.mode structured needs output_locator.output_path_key"


FileAdapter = Annotated[UploadConsumer | ArtifactProducer, Field(discriminator="type")]

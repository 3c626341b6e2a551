"""``servers[].adapters[]``: which tools take or produce files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from adapter.settings.section import ByteSize, OptionalText, Section, Text, UriScheme
from adapter.settings.servers.tool_policies import ToolDefaultsOverride, ToolPatterns

Tools = Annotated[list[Text], Field(min_length=1)]


class UploadConsumer(Section):
    """Tools with an argument that names files."""

    type: Literal["upload_consumer"] = Field(description="`upload_consumer`: these tools take files.")
    tools: Tools = Field(description="Names of the tools.")
    file_path_argument: Text = Field(
        description="Argument that holds the file or files; dotted and through lists, as in `files[].path`."
    )
    uri_scheme: UriScheme = Field(default="upload://", description="How handles in that argument begin.")
    uri_prefix: bool | None = Field(
        default=None, description="True is `delivery: file_uri`, under the reference's name."
    )
    delivery: Literal["path", "file_uri", "base64", "data_uri", "url"] = Field(
        default="path", description="What the tool gets in place of the handle."
    )
    max_inline_bytes: ByteSize = Field(
        default=1024**2, description="Largest file that base64 and data_uri deliver."
    )
    allow_plain_paths: bool = Field(default=False, description="Passes text that is no handle on as it is.")
    overrides: ToolDefaultsOverride = Field(
        default_factory=ToolDefaultsOverride, description="How these tools are called."
    )


class OutputLocator(Section):
    """Where a produced file is found when it is not at the path that was asked for."""

    mode: Literal["structured", "regex", "embedded", "resource", "none"] = Field(
        default="none", description="Where in the result the file is named or held."
    )
    output_path_key: OptionalText = Field(
        default=None, description="Dotted path into structuredContent, for `structured`."
    )
    output_path_regexes: ToolPatterns = Field(
        default_factory=list, description="Expressions for `regex`; empty uses the built-in ones."
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _null_is_none(cls, value: object) -> object:
        return "none" if value is None else value


class ArtifactProducer(Section):
    """Tools that write a file."""

    type: Literal["artifact_producer"] = Field(description="`artifact_producer`: these tools produce files.")
    tools: Tools = Field(description="Names of the tools.")
    output_path_argument: OptionalText = Field(
        default=None, description="Argument that tells the tool where to write; null when it has none."
    )
    output_locator: OutputLocator = Field(
        default_factory=OutputLocator, description="Where the file is found otherwise."
    )
    persist: bool = Field(default=True, description="Keeps the file; false leaves the result alone.")
    expose_as_resource: bool = Field(default=True, description="Lists these artifacts as resources.")
    allow_raw_output: bool | None = Field(
        default=None,
        validation_alias=AliasChoices("allow_raw_output", "include_raw_output"),
        description="Embeds the bytes in the result as well; null keeps `core.defaults.allow_raw_output`.",
    )
    required: bool = Field(default=False, description="Makes a failed capture an error of the call.")
    overrides: ToolDefaultsOverride = Field(
        default_factory=ToolDefaultsOverride, description="How these tools are called."
    )

    @model_validator(mode="after")
    def _can_find_its_file(self) -> ArtifactProducer:
        locator = self.output_locator
        if (
            self.output_path_argument is None
            and locator.mode == "structured"
            and locator.output_path_key is None
        ):
            raise ValueError("output_locator.mode structured needs output_locator.output_path_key")
        return self


FileAdapter = Annotated[UploadConsumer | ArtifactProducer, Field(discriminator="type")]

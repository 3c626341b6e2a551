"""``core.audit``: the record of calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from adapter.settings.section import BlankIsNull, Section


class AuditSettings(Section):
    """Audit log: one line of JSON for each call; off unless `file` or `stdout` is set."""

    file: Annotated[Path | None, BlankIsNull] = Field(
        default=None,
        description="File that lines are appended to, relative to the settings file; it is opened again when it was "
        "renamed.",
    )
    stdout: bool = Field(default=False, description="Write the lines to standard output.")
    arguments_digest: bool = Field(
        default=False,
        description="Add the SHA-256 digest of a call's arguments, as canonical JSON; with `arguments_key` the HMAC.",
    )
    arguments_key: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None,
        description="Key of the HMAC-SHA-256 over arguments, so that nobody without it can try out what they were.",
    )
    on_failure: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Treatment of calls while the log cannot be written. `refuse`: an answer is withheld and calls "
        "are refused. `allow`: calls go on without a record.",
    )

    @property
    def enabled(self) -> bool:
        """Tell whether anything is recorded."""
        return self.file is not None or self.stdout

    @model_validator(mode="after")
    def _has_one_place(self) -> AuditSettings:
        if self.file is not None and self.stdout:
            raise ValueError("file and stdout are both set: choose one")
        if not self.enabled and (self.arguments_digest or self.arguments_key is not None):
            raise ValueError("nothing is recorded: set file or stdout")
        if self.arguments_key is not None and not self.arguments_digest:
            raise ValueError("arguments_key is of no use without arguments_digest")
        return self

"""``connectors``, ``context`` and ``presenters``, the stages of tool calls beyond a single tool; and ``console``, the
web page for tools with their HTTP API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, Tag

from adapter.settings.auth import Scopes
from adapter.settings.section import (
    AS_SECTION,
    AS_TEXT,
    BlankIsNull,
    ByKindOfEntry,
    ByteSize,
    CodeReference,
    Count,
    Entries,
    Line,
    OneIsAList,
    OptionalText,
    Seconds,
    Section,
    Spelled,
    Text,
    TextList,
    UrlPath,
)

ConnectorKind = Literal["sqlite", "postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis"]


def _is_a_name(value: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value.strip()) is None:
        raise ValueError("must begin with a letter and contain only letters, digits, _ and -")
    return value.strip()


class ConnectorSettings(Section):
    """A database for tools of hosted servers."""

    name: Annotated[str, AfterValidator(_is_a_name)]
    """Unique name, for `servers[].tools.define[].use`."""
    connector: ConnectorKind
    """Kind of the database; all but SQLite need an extra of the package."""
    connection_string: SecretStr = Field(min_length=1)
    """Address of the database; may contain `{{ env.NAME }}`."""
    options: Annotated[dict[str, Any], Spelled("mapping of names to values")] = Field(
        default_factory=dict, repr=False
    )
    """Options of the driver, such as `pool_size`."""
    max_rows: Count = 1000
    """Maximum number of rows in one result; more are cut off."""
    timeout_seconds: Seconds = 10
    """Timeout of a statement, unless its tool has `limits.timeout`."""
    required: bool = True
    """Refuse to start if this database cannot be reached."""


class ContextSettings(Section):
    """Additional context for handlers, middleware and presenters."""

    factory: CodeReference = None
    """Function of the request whose members join the context."""


_CODE = re.compile(r".+\.py#[^\W\d]\w*|\S+\.py")


def names_code(text: str) -> bool:
    """Tell whether a text names a function, as ``file.py#function`` or ``file.py``; any other text is used
    literally.
    """
    return _CODE.fullmatch(text) is not None


def _code(text: object) -> object:
    if not isinstance(text, str) or not names_code(text.strip()):
        raise ValueError("must be a function as file.py#function, which returns what is shown")
    return text


Function = Annotated[Line, BeforeValidator(_code), Tag(AS_TEXT)]


class RedactionSettings(Section):
    """Values that are replaced before anybody reads them."""

    paths: Entries
    """Paths of the values, such as `ssn`, `*.ssn`, `orders[*].card`."""
    censor: Line = "[REDACTED]"
    """Replacement text, or a function of the value as `file.py#function`."""


class SuggestionSettings(Section):
    """A suggestion for the next call."""

    when: OptionalText = None
    """Condition on the data, such as `status == 'overdue'`; null means always."""
    tool: Text
    """Name of the tool."""
    reason: Text
    """Reason that the model reads."""


Suggestions = Annotated[
    list[Annotated[Function | Annotated[SuggestionSettings, Tag(AS_SECTION)], ByKindOfEntry]],
    OneIsAList,
    Spelled("list of `file.py#function`"),
]
Functions = Annotated[list[Function], OneIsAList, Spelled("list of `file.py#function`")]
Rules = Annotated[list[Line], OneIsAList, Spelled("list of text and `file.py#function`")]


class PresenterSettings(Section):
    """Filters and additions for a tool's data. Functions are called with the redacted data and the context."""

    # BaseModel has a method of the name that the file uses.
    shape: Annotated[dict[str, Any] | None, Spelled("mapping of names to types, or null")] = Field(
        default=None, alias="schema"
    )
    """Members that are shown, and types: `string`, `int`, `float`, `bool`, `any`, `list[T]`, a mapping; `?` marks
    optional ones.
    """
    json_schema: Annotated[dict[str, Any] | None, Spelled("JSON Schema, or null")] = None
    """The same as JSON Schema."""
    limit: Count | None = None
    """Maximum number of list items that are shown; null shows all."""
    redact: RedactionSettings | None = None
    """Values that are replaced before anybody reads them."""
    rules: Rules = Field(default_factory=list)
    """Rules for the model about this data."""
    ui: Functions = Field(default_factory=list)
    """Functions that return interface blocks for single items."""
    suggest: Suggestions = Field(default_factory=list)
    """Suggested next calls, for a single item or the first item of a list."""
    embed: dict[str, Text] = Field(default_factory=dict)
    """Presenters of members, by the member's name."""
    collection_rules: Rules = Field(default_factory=list)
    """Additional rules for a list."""
    collection_ui: Functions = Field(default_factory=list)
    """Functions that return interface blocks for a list."""
    collection_suggest: Suggestions = Field(default_factory=list)
    """Suggested next calls for a list, instead of `suggest`."""
    select: bool = False
    """Allow callers to choose members with the argument `_select`."""
    format: Literal["json", "toon"] = "json"
    """Text format of the data."""

    def _contradictions(self) -> Iterator[str]:
        if self.shape is not None and self.json_schema is not None:
            yield "has both schema and json_schema: remove one of them"


ClaimValues = dict[str, TextList]


class ConsoleOAuth(Section):
    """Sign-in with the first issuer of `core.auth.oauth`."""

    client_id: Line
    """Client id; its redirect URI is `core.public_base_url` + `console.path` + `/-/signed-in`."""
    client_secret: Annotated[SecretStr | None, BlankIsNull] = None
    """Client secret (HTTP Basic authentication); null for a public client."""
    scopes: Scopes = Field(default_factory=list)
    """Scopes that are asked for, besides `required_scopes` of the issuer."""
    operator_claims: ClaimValues = Field(default_factory=dict)
    """Values by claim, of which one makes a person an operator; `a.b` is a member of a claim, `scope` a list of
    scopes.
    """
    viewer_claims: ClaimValues = Field(default_factory=dict)
    """Values by claim, of which one lets a person see the console; without any everybody may."""


class Console(Section):
    """The web page for tools, and the tool HTTP API."""

    enabled: bool = False
    """Serve the page and the API."""
    path: UrlPath = "/explorer"
    """Path of the page; the API of each server is below it."""
    title: Text = "MCP Tool Explorer"
    """Heading of the page."""
    allow_execute: bool = False
    """Allow the page and the API to call tools."""
    auth_hook: CodeReference = None
    """Context manager around each call of the API, which refuses by an exception."""
    discovery_auth: bool = False
    """Require a token of `core.auth` for tool lists too, not only for calls."""
    invalid_json: Literal["empty", "reject"] = "empty"
    """Treatment of a body that is not JSON. `empty`: call without arguments, with a warning. `reject`: 400."""
    max_body: ByteSize = 1024**2
    """Maximum size of a request body; a larger one gets 413."""
    operators: TextList = Field(default_factory=list)
    """Names in `core.auth.tokens` that may accept changed tools; without `core.auth`, everybody on loopback may
    accept.
    """
    oauth: ConsoleOAuth | None = None
    """Sign-in of people with their browser at an issuer of `core.auth.oauth`; tokens continue to work."""

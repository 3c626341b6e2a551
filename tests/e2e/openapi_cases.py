"""What an OpenAPI document promises, put to the test, run with a Python that has Schemathesis:
``-m tests.e2e.openapi_cases BASE CASES TOKEN``, TOKEN empty where none is asked for.

The document is read from the adapter at BASE. Each operation is sent CASES cases, half of them against its schema, and
most of them aimed at what is really there: invented names would meet nothing but 404. A line of JSON for each
operation says what came back, and which promises were broken.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

# By name: the project's own environment, which the type checker sees, does not hold them.
requests: Any = import_module("requests")
schemathesis: Any = import_module("schemathesis")
generation: Any = import_module("schemathesis.generation")
checks: Any = import_module("schemathesis.specs.openapi.checks")

DOCUMENT = "/explorer/openapi.json"
PATIENCE = 20.0
"""Seconds that one answer may take."""

MOST_BROKEN = 5
"""Broken promises of one operation that are told."""

LONGEST = 1500
"""Characters that are told of one thing."""

AWAY = "away"
"""The server that nobody listens for."""

HELPER = "files_get_upload_url"
HELD = {"draw": {"seed": 1, "size": 64, "filename": "cases.bin"}}
"""The call that leaves an artifact, by its tool."""

STRANGER = "Bearer of-nobody"
FOR_ALL = frozenset(("listTools", "showTool", "showMeta", "showHealth", "showLive", "showReady"))
"""Operations that strangers may use; files are theirs who have a signed link."""

CALLS = frozenset(("callTool", "continueCall"))
"""Operations that answer with the result of a tool."""

REFUSED, REFUSAL = frozenset(("getPrompt", "readContents", "completeArgument")), "The server refused"
"""Operations that a server may refuse, and how the answer begins."""

STREAMS = frozenset(("followServer",))
"""Operations whose answers have no end."""

PROMISES = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]

Json = dict[str, Any]


# --- what is there --------------------------------------------------------------------------------------------


@dataclass
class Known:
    """What really is behind an adapter, for cases to aim at.

    ``files`` are the parts of an artifact's path, each with the query of its signed link.
    """

    base: str
    session: Any
    tools: dict[str, list[Json]] = field(default_factory=dict)
    uris: list[str] = field(default_factory=lambda: ["note://upstream"])
    files: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, base: str, session: Any) -> Known:
        """Look at the adapter, and have it keep an artifact."""
        known, path = cls(base, session), f"{base}/explorer"
        for server in session.get(f"{path}/-/servers", timeout=PATIENCE).json():
            place = f"{path}/{server['id']}/tools"
            listed = session.get(place, timeout=PATIENCE).json()
            names = [tool["name"] for tool in listed] if isinstance(listed, list) else []
            known.tools[server["id"]] = [
                session.get(f"{place}/{name}", timeout=PATIENCE).json() for name in names
            ]
            known.digests[server["id"]] = session.get(
                f"{path}/-/pins/{server['id']}", timeout=PATIENCE
            ).json()["digest"]
            for name in HELD.keys() & set(names):
                answer = session.post(f"{place}/{name}/call", json=HELD[name], timeout=PATIENCE)
                known._keep(answer.json()["_meta"]["artifact"])
        return known

    def upload_link(self) -> tuple[str, dict[str, str]]:
        """The server and the query of a fresh upload URL."""
        call = f"{self.base}/explorer/files/tools/{HELPER}/call"
        answer = self.session.post(call, json={}, timeout=PATIENCE).json()
        link = urlsplit(answer["structuredContent"]["upload_url"])
        return link.path.rpartition("/")[2], dict(parse_qsl(link.query))

    def _keep(self, artifact: Json) -> None:
        self.uris.append(artifact["artifact_uri"])
        link = urlsplit(artifact["download_url"])
        parts = [unquote(part) for part in link.path.split("/")[-4:]]
        named = dict(zip(("server", "scope", "file", "filename"), parts, strict=True))
        self.files.append((named, dict(parse_qsl(link.query))))


# --- aiming ---------------------------------------------------------------------------------------------------


@dataclass
class Aim:
    """Turns most cases towards what is there; the others stay as they were made."""

    known: Known
    chance: random.Random
    token: str

    def credential(self) -> dict[str, str]:
        """Header fields of who sends a case: where tokens are asked for, a stranger now and then."""
        if not self.token:
            return {}
        return {"Authorization": STRANGER if self.chance.random() < 0.1 else f"Bearer {self.token}"}

    def accept(self, operation: str) -> dict[str, str]:
        """Header fields of who opens a link: a person, most of the time."""
        by_person = operation == "openUploadLink" and self.chance.random() < 0.8
        return {"Accept": "text/html"} if by_person else {}

    def at(self, case: Any, operation: str) -> None:
        """Change the case. Values that its schema forbids may stay among those that are not touched."""
        # The console's own addresses begin so, and no server can have this id.
        of_console = (case.path_parameters or {}).get("server") == "-"
        if self.chance.random() < 0.1 and not of_console:
            return
        server = self._server(case)
        if "name" in (case.path_parameters or {}):
            self._at_tool(case, operation, server)
        elif operation == "readResource":
            case.query = {"uri": self.chance.choice(self.known.uris)}
        elif operation == "readContents" and isinstance(case.body, dict):
            case.body = {"uri": self.chance.choice(self.known.uris)}
        elif operation in ("downloadArtifact", "downloadDelivery"):
            named, query = self.chance.choice(self.known.files)
            case.path_parameters.update(named)
            case.query = self.chance.choice((query, {}, {**query, "sig": "0"}))
        elif operation in ("uploadFiles", "openUploadLink") and self.chance.random() < 0.5:
            # Good for one upload each, so none can be kept for many cases.
            case.path_parameters["server"], case.query = self.known.upload_link()
        elif operation == "acceptPins" and isinstance(case.body, dict) and self.chance.random() < 0.7:
            case.body = {"digest": self.known.digests[server]}
        if "X-Adapter-Session" in (case.headers or {}) and self.chance.random() < 0.9:
            # Else each case would open a session of its own.
            del case.headers["X-Adapter-Session"]

    def _server(self, case: Any) -> str:
        here = [server for server in self.known.tools if server != AWAY]
        server = AWAY if self.chance.random() < 0.1 else self.chance.choice(here)
        if "server" in (case.path_parameters or {}):
            case.path_parameters["server"] = server
        return server

    def _at_tool(self, case: Any, operation: str, server: str) -> None:
        tools = self.known.tools[server]
        if not tools or self.chance.random() < 0.05:
            return
        tool = self.chance.choice(tools)
        case.path_parameters["name"] = tool["name"]
        if isinstance(case.body, dict) and self.chance.random() < 0.8:
            case.body = self._arguments(tool["inputSchema"], case.body)
        if operation == "callTool" and self.chance.random() < 0.2:
            case.headers = {**(case.headers or {}), "Accept": "text/event-stream"}
        if self.chance.random() < 0.5:
            case.headers = {**(case.headers or {}), "X-API-Key": "opensesame"}

    def _arguments(self, schema: Mapping[str, Any], odd: Mapping[str, Any]) -> Json:
        """Arguments under the names that the tool knows, most of them of the right type."""
        others = [*odd.values(), None]
        arguments = {}
        for name, member in schema.get("properties", {}).items():
            kind = member.get("type")
            if self.chance.random() < 0.15:
                arguments[name] = self.chance.choice(others)
            elif kind == "integer":
                arguments[name] = self.chance.choice((0, 1, 3, -1, 64))
            elif kind == "string":
                arguments[name] = self.chance.choice(
                    ("ann", "", "2026-01-01", "f.bin", "../f", "é", "%' OR 1=1")
                )
            elif kind == "array":
                arguments[name] = ["ann"]
        return arguments


# --- judging --------------------------------------------------------------------------------------------------


def failure_of(response: Any, operation: str, server: object) -> str | None:
    """What is wrong with an answer's status, if anything is: a failure of the adapter's own is, whoever wrote it down.

    Four kinds of 5xx are no failure of the adapter's. A tool that fails is 500 with its result, as the API's
    specification has it. A server that refuses a prompt or a resource, or is away, is said to. And health says that
    it is.
    """
    status = response.status_code
    if status < 500:
        return None
    if status == 500 and operation in CALLS and _is_failed_result(response):
        return None
    if status == 502 and operation in REFUSED and REFUSAL in response.text:
        return None
    if status in (502, 503, 504) and server == AWAY:
        return None
    if status == 503 and operation in ("showHealth", "showReady"):
        return None
    return f"status {status}: {response.content[:LONGEST]!r}"


def _is_failed_result(response: Any) -> bool:
    said = response.json()
    return isinstance(said, dict) and said.get("isError") is True and isinstance(said.get("content"), list)


@dataclass
class Outcome:
    """What came of one operation's cases."""

    operation: str
    statuses: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def judge(self, case: Any, response: Any, *, stranger: bool) -> None:
        """Count an answer, and note what it breaks."""
        self.statuses[response.status_code] += 1
        said = failure_of(response, self.operation, (case.path_parameters or {}).get("server"))
        broken = [said] if said is not None else []
        if stranger and self._let_in(case, response):
            broken.append(f"a stranger was let in: {response.status_code} {response.content[:LONGEST]!r}")
        try:
            case.validate_response(response, checks=PROMISES)
        except BaseExceptionGroup as wrong:
            broken += [str(each)[:LONGEST] for each in wrong.exceptions]
        if broken and len(self.broken) < MOST_BROKEN:
            self.broken.append("\n".join([case.as_curl_command()[:LONGEST], *broken]))

    def judge_stream(self, case: Any, head: Any, *, stranger: bool) -> None:
        """The same of a stream without an end, of which the head alone is judged."""
        self.statuses[head.status_code] += 1
        kind = head.headers.get("Content-Type", "").partition(";")[0]
        declared = case.operation.definition.raw["responses"].get(str(head.status_code))
        if declared is None or kind not in declared.get("content", {}):
            self.broken.append(f"{case.as_curl_command()[:LONGEST]}\n{head.status_code} {kind}")
        if stranger and self._let_in(case, head):
            self.broken.append(f"a stranger was let in: {head.status_code}")

    def _let_in(self, case: Any, response: Any) -> bool:
        linked = "sig" in (case.query or {})
        return bool(response.status_code < 400) and self.operation not in FOR_ALL and not linked

    def told(self) -> Json:
        return {
            "operation": self.operation,
            "cases": self.statuses.total(),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "broken": self.broken,
            "seconds": round(self.seconds, 1),
        }


def tried(operation: Any, cases: int, aim: Aim, session: Any) -> Outcome:
    """Send the cases of one operation. An operation without anything to vary has one only."""
    outcome = Outcome(operation.definition.raw["operationId"])
    strategy = st.one_of([operation.as_strategy(generation_mode=mode) for mode in generation.GenerationMode])

    # Nothing is kept, nothing is made smaller: what is wrong is told as it was met.
    @seed(cases)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        aim.at(case, outcome.operation)
        credential = aim.credential()
        stranger = STRANGER in credential.values()
        if outcome.operation in STREAMS:
            asked = case.as_transport_kwargs(headers=credential)
            with session.request(**asked, stream=True, timeout=PATIENCE) as head:
                outcome.judge_stream(case, head, stranger=stranger)
            return
        fields = {**credential, **aim.accept(outcome.operation)}
        answer = case.call(session=session, headers=fields, timeout=PATIENCE)
        outcome.judge(case, answer, stranger=stranger)

    began = time.monotonic()
    send()
    outcome.seconds = time.monotonic() - began
    return outcome


def main(argv: Sequence[str]) -> None:
    base, cases, token = argv
    session, own = requests.Session(), requests.Session()
    if token:
        own.headers["Authorization"] = f"Bearer {token}"
    aim = Aim(Known.at(base, own), random.Random(cases), token)
    schema = schemathesis.openapi.from_url(f"{base}{DOCUMENT}")
    for found in schema.get_all_operations():
        print(json.dumps(tried(found.ok(), int(cases), aim, session).told()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The console's page as it is served: small, cached well, of known files only, and under a policy it keeps to."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress
from importlib.resources import files
from typing import Any

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator

from adapter.edge.api.routes import CATALOGUE_ROUTES, GO_ON, NAME, PREVIEW, ROUTES, ApiRoute, matched
from adapter.edge.console.page_files import PageFiles, ServedPaths, document, pages
from adapter.edge.console.page_files import document as openapi
from adapter.edge.http.bodies import Body
from adapter.edge.http.request import Fields, Request
from adapter.errors import NotFound
from adapter.wire.envelope import parse
from tests.edge.consoling import DATA, Shop, StartConsole, listed
from tests.edge.test_console_data import READ, TOPICS, UPLOADS, eventually, upload
from tests.edge.tool_serving import PATH, serving
from tests.hosted.serving import echo, hosted, tool
from tests.relay.sessions.test_health_probe import PING

PLOTS = {"vendor/echarts.min.js", "vendor/mermaid.tiny.js"}
MARKUP_OUT_OF_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTML|\beval\(|new Function"
)


@pytest.fixture(scope="module")
def page_files() -> PageFiles:
    return PageFiles()


class Sent:
    """A reply that keeps what is sent."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.fields: dict[str, str] = {}
        self.body = b""

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        self.status, self.fields, self.body = status, dict(fields), body


async def asked(page_files: PageFiles, target: str, **fields: str) -> Sent | None:
    """What a GET of ``target`` is answered, None where no branch is for it."""
    sent = Sent()
    named = Fields([(name.replace("_", "-"), value) for name, value in fields.items()])
    request = Request("GET", target, target, named, Body(lambda: None), sent)  # type: ignore[arg-type]  # a part
    for branch in pages("/tools/explorer", ["demo"], page_files):
        names = branch.names(request)
        if names is not None:
            await branch.serve(request, names)
            return sent
    return None


async def test_the_page_is_small(page_files: PageFiles) -> None:
    """With its font and its Markdown reader, and without the plot libraries: under 150 KB gzipped."""
    size = len((await page_files.page({"Accept-Encoding": "gzip"}))[2])
    for name in set(page_files) - PLOTS:
        size += len(
            (await page_files.file((page_files.version, *name.split("/")), {"Accept-Encoding": "gzip"}))[2]
        )
    assert size < 150 * 1000


async def test_the_page_stands_below_any_mount(page_files: PageFiles) -> None:
    """At its path and at those of its servers, naming its assets relative to itself; without the slash it redirects."""
    page = await asked(page_files, "/tools/explorer/")
    server = await asked(page_files, "/tools/explorer/demo")
    bare = await asked(page_files, "/tools/explorer")
    assert page is not None and server is not None and bare is not None
    assert page.status == server.status == 200 and page.body == server.body
    assert f'href="assets/{page_files.version}/console.css"'.encode() in page.body
    assert (bare.status, bare.fields["Location"]) == (308, "explorer/")


async def test_every_asset_the_page_names_is_there(page_files: PageFiles) -> None:
    """Each comes with its type, for a year, and is not asked for again while its version stands in the path."""
    _, _, html = await page_files.page({})
    named = re.findall(r'(?:href|src)="(assets/[^"]+)"', html.decode())
    assert len(named) > 30
    for name in named:
        sent = await asked(page_files, f"/tools/explorer/{name}")
        assert sent is not None and sent.status == 200
        assert sent.fields["Cache-Control"] == "public, max-age=31536000, immutable"
        assert sent.fields["X-Content-Type-Options"] == "nosniff"


async def test_an_asset_known_from_before_is_not_sent_again(page_files: PageFiles) -> None:
    """Each variant has a strong tag of its own; one of another version is sent, to be asked for again."""
    path = f"/tools/explorer/assets/{page_files.version}/console.css"
    plain, packed = (
        await asked(page_files, path),
        await asked(page_files, path, Accept_Encoding="br, gzip;q=0.8"),
    )
    assert plain is not None and packed is not None
    assert gzip.decompress(packed.body) == plain.body and packed.fields["Vary"] == "Accept-Encoding"
    assert plain.fields["ETag"] != packed.fields["ETag"] and not plain.fields["ETag"].startswith("W/")
    known = await asked(page_files, path, If_None_Match=plain.fields["ETag"])
    refused = await asked(page_files, path, Accept_Encoding="gzip;q=0")
    older = await asked(page_files, "/tools/explorer/assets/0123456789ab/console.css")
    assert known is not None and (known.status, known.body) == (304, b"")
    assert refused is not None and "Content-Encoding" not in refused.fields
    assert older is not None and older.fields["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name",
    [
        "../page_files.py",
        "%2e%2e/page_files.py",
        "js/%2e%2e%2findex.html",
        "vendor/package.json",
        "js/",
        "x.js",
    ],
)
async def test_nothing_else_is_served(page_files: PageFiles, name: str) -> None:
    """A path out of the directory is but a name that nobody knows."""
    sent = None
    with suppress(NotFound):
        sent = await asked(page_files, f"/tools/explorer/assets/{page_files.version}/{name}")
    assert sent is None


async def test_other_paths_are_left_to_others(page_files: PageFiles) -> None:
    """Those of the API, of unknown servers, and of other prefixes."""
    for path in (
        "/tools/explorer/-/me",
        "/tools/explorer/nobody",
        "/tools/explorer/demo/tools",
        "/tools",
        "/",
    ):
        assert await asked(page_files, path) is None


async def test_the_policy_leaves_no_room_for_scripts_of_others(page_files: PageFiles) -> None:
    """The page has none inline; the plots' frame has no origin and connects to nothing."""
    page = await asked(page_files, "/tools/explorer/")
    frame = await asked(page_files, f"/tools/explorer/assets/{page_files.version}/frame.html")
    assert page is not None and frame is not None
    policy = dict(part.partition(" ")[::2] for part in page.fields["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.fields["X-Frame-Options"] == "DENY" and page.fields["Referrer-Policy"] == "no-referrer"
    assert "sandbox allow-scripts;" in frame.fields["Content-Security-Policy"]
    assert "connect-src" not in frame.fields["Content-Security-Policy"]


@pytest.mark.parametrize("name", ["index.html", "frame.html"])
def test_no_html_holds_scripts_or_styles(name: str) -> None:
    """Neither elements with content nor attributes."""
    html = (files("adapter.edge.console") / "page" / name).read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", html)


def test_no_text_becomes_markup() -> None:
    """The page's own scripts know no way from a string to markup or to code."""
    for script in (files("adapter.edge.console") / "page" / "js").iterdir():
        assert not MARKUP_OUT_OF_TEXT.search(script.read_text()), script.name


# --- the console's routes are what their OpenAPI document says of them --------------------------------------------


async def test_every_route_is_described_as_it_answers(console: StartConsole) -> None:
    """Each answer is what the document says of it, and each route stands there."""
    document = orjson.loads(openapi(ServedPaths("/explorer"), "1"))
    assert {path for path in document["paths"] if path.startswith(DATA)} == {
        *(f"{DATA}{topic}".replace("/raw", "/{server}") for topic in TOPICS),
        f"{DATA}/pins/{{server}}/accept",
    }
    mounts = [{"id": "all", "servers": "*"}]
    core = {"upstream_ping": {**PING, "enabled": True}}
    async with console(Shop(READ), server=UPLOADS, core=core, mounts=mounts) as (_, front, agent):
        await agent.initialize()
        await listed(agent)
        await upload(agent)
        await eventually(front, "/servers", lambda told: told[0]["history"])
        for topic in TOPICS:
            answer = await front.get(topic)
            path = f"{DATA}{topic}".replace("/raw", "/{server}")
            said = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            validator = Draft202012Validator({**said, "components": document["components"]})
            assert [error.message for error in validator.iter_errors(answer)] == [], topic
            assert answer


# --- the OpenAPI document: that it is one, and that it has every route that is served -----------------------------


PARAMETER = {
    "type": "object",
    "required": ["name", "in", "schema"],
    "properties": {"name": {"type": "string"}, "in": {"enum": ["path", "query", "header"]}},
    "if": {"properties": {"in": {"const": "path"}}},
    "then": {"properties": {"required": {"const": True}}},
}
MEDIA = {"type": "object", "patternProperties": {"^[a-z*]+/[a-z*+.-]+$": {"type": "object"}}}
OPERATION = {
    "type": "object",
    "required": ["operationId", "responses", "tags", "summary", "security"],
    "properties": {
        "parameters": {"type": "array", "items": PARAMETER},
        "requestBody": {"type": "object", "required": ["content"], "properties": {"content": MEDIA}},
        "responses": {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {
                "^[1-5][0-9][0-9]$": {
                    "type": "object",
                    "required": ["description"],
                    "properties": {"content": MEDIA, "headers": {"type": "object"}},
                }
            },
            "additionalProperties": False,
        },
    },
}
OPENAPI = {
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {"type": "object", "required": ["title", "version"]},
        "paths": {
            "type": "object",
            "patternProperties": {
                "^/": {
                    "type": "object",
                    "patternProperties": {"^(get|head|post|put|delete)$": OPERATION},
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "components": {"type": "object"},
    },
    "additionalProperties": False,
}
"""What the OpenAPI specification 3.1 asks of the parts that are used here."""


def check_document(said: dict[str, Any]) -> None:
    """Fails for what is no OpenAPI document, or refers to what is not in it."""
    Draft202012Validator(OPENAPI).validate(said)
    schemas = said["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)

    def walk(here: Any) -> None:
        if isinstance(here, dict):
            if "$ref" in here:
                assert here["$ref"].removeprefix("#/components/schemas/") in schemas
            for inner in here.values():
                walk(inner)
        elif isinstance(here, list):
            for inner in here:
                walk(inner)

    walk(said)
    for path, methods in said["paths"].items():
        wanted = {part.strip("{}") for part in path.split("/") if part.startswith("{")}
        for operation in methods.values():
            found = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert found == wanted, f"{path} names {wanted} and describes {found}"


async def test_the_document_is_served_and_valid() -> None:
    """To everybody, and it holds every route of the tool API with the methods that are served."""
    async with serving(hosted([tool("echo", echo)])) as api:
        head, said = await api.get("/openapi.json")
        assert head.status == 200 and head["content-type"] == "application/json"
    check_document(said)
    routes: list[ApiRoute[Any]] = [*ROUTES, GO_ON, *CATALOGUE_ROUTES, PREVIEW]
    served = {(f"{PATH}/{{server}}{each.path}", each.methods[0]) for each in routes}
    served.add((f"{PATH}/openapi.json", "GET"))
    assert {
        (path, method.upper())
        for path, methods in said["paths"].items()
        for method in methods
        if path.startswith(PATH) and not path.startswith(f"{PATH}/-/")
    } == served


def test_each_operation_has_one_id() -> None:
    """By which clients that are written from the document name it."""
    said = parse(document(ServedPaths("/x", "/up", downloads=True, grants=True), "1"))
    check_document(said)
    ids = [operation["operationId"] for methods in said["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_no_two_parts_of_an_operation_tell_the_same_status() -> None:
    """Readers of YAML differ on which of two parts that are merged counts."""
    text = files("adapter.edge").joinpath("openapi.yaml").read_text(encoding="utf-8")
    parts = yaml.safe_load(text)["x-responses"]
    anchors = text.partition("x-responses:")[2].partition("\n\n")[0]
    named = dict(zip(re.findall(r"^  - &(\w+)", anchors, re.MULTILINE), parts, strict=True))
    merged = re.findall(r"<<: \[(.*)\]", text)
    assert len(merged) > 5
    for names in merged:
        statuses = [status for name in names.split(", ") for status in named[name.removeprefix("*")]]
        assert len(set(statuses)) == len(statuses), names


@pytest.mark.parametrize(
    ("pattern", "parts", "names"),
    [
        (("{server}", "tools"), ("one", "tools"), ("one",)),
        (("{server}", "tools"), ("one", "meta"), None),
        (("{server}", "tools"), ("one", "tools", "x"), None),
        (("{server}", "tools", NAME), ("one", "tools", "x"), ("one", "x")),
        (("{server}", "tools", NAME), ("one", "tools", "x", "y"), ("one", "x/y")),
        (("{server}", "tools", NAME), ("one", "tools"), None),
        (("{server}", "tools", NAME, "call"), ("one", "tools", "a", "b", "call"), ("one", "a/b")),
        (("{server}", "tools", NAME, "call"), ("one", "tools", "call"), None),
        (("{server}", "tools", NAME, "call"), ("one", "tools", "a/b", "call"), ("one", "a/b")),
        (("{server}", "tools", NAME, "call"), ("one", "tools", "a/call"), None),
    ],
)
def test_patterns_of_paths(pattern: tuple[str, ...], parts: tuple[str, ...], names: tuple[str, ...]) -> None:
    """A tool's name may take several parts; what is encoded never counts as a part."""
    assert matched(pattern, parts) == names


def test_files_and_health_are_described() -> None:
    """Where they are served; without files the document says nothing of them."""
    said = parse(document(ServedPaths("/x", "/up", downloads=True), "1"))
    check_document(said)
    files = {"/up/{server}", "/up/{server}/{scope}/{file}/{filename}"}
    files.add("/artifacts/{server}/{scope}/{file}/{filename}")
    assert files < set(said["paths"]) and {"/healthz", "/livez", "/readyz"} < set(said["paths"])
    assert files.isdisjoint(parse(document(ServedPaths("/x"), "1"))["paths"])

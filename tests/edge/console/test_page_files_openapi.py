"""The OpenAPI document: that it is one, and that it has every route that is served."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from adapter.edge.api.routes import CATALOGUE_ROUTES, GO_ON, NAME, PREVIEW, ROUTES, ApiRoute, matched
from adapter.edge.console.page_files import ServedPaths, document
from adapter.wire.envelope import parse
from tests.edge.tool_serving import PATH, serving
from tests.hosted.serving import echo, hosted, tool

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

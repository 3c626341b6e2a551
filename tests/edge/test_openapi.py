"""The OpenAPI document: that it is one, and that it has every route that is served."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from adapter.edge.api.catalogue_routes import ROUTES as CATALOGUE_ROUTES
from adapter.edge.api.routes import CONTINUE, NAME, ROUTES, matched
from adapter.edge.api.routes import document as document_of_servers
from adapter.edge.openapi import Operation, document, json, operations, ref
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
    served = {(f"{PATH}/{{server}}{route.operation.path}", route.operation.method) for route in ROUTES}
    served |= {
        (f"{PATH}/{{server}}{each.path}", each.method)
        for each in (CONTINUE, *(route.operation for route in CATALOGUE_ROUTES))
    }
    served |= {(f"{PATH}/{{server}}/resources", "GET"), (f"{PATH}/openapi.json", "GET")}
    described = {(path, method.upper()) for path, methods in said["paths"].items() for method in methods}
    assert described == served


def test_others_add_their_routes() -> None:
    """As they stand; two of one path and method, or one id, are a mistake that is noticed."""
    mine = Operation("GET", "/-/me", "me", "console", "Me.", {200: json("Me.", {"type": "object"})})
    said = parse(document_of_servers("/x", [mine.below("/x")], version="1"))
    check_document(said)
    assert said["paths"]["/x/-/me"]["get"]["operationId"] == "me"
    for other in (mine, Operation("GET", "/other", "me", "console", "Me.", {200: json("Me.", ref("Error"))})):
        with pytest.raises(ValueError, match="described twice"):
            document([mine, other], {}, title="t", version="1")


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
    said = parse(document_of_servers("/x", operations("/up", downloads=True), version="1"))
    check_document(said)
    files = {"/up/{server}", "/up/{server}/{scope}/{file}/{filename}"}
    files.add("/artifacts/{server}/{scope}/{file}/{filename}")
    assert files < set(said["paths"]) and {"/healthz", "/livez", "/readyz"} < set(said["paths"])
    assert files.isdisjoint(operation.path for operation in operations(None, downloads=False))

"""What the public conformance suite expects a server to offer: names, schemas and fixed contents."""

from __future__ import annotations

from typing import Any

import mcp_types as types

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA=="

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def text_argument(name: str, **more: Any) -> dict[str, Any]:
    """The schema of a tool with one required string; ``more`` joins the string's own schema."""
    return {"type": "object", "properties": {name: {"type": "string", **more}}, "required": [name]}


JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

USER_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}

DEFAULTS_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}

_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [
    {"const": "value1", "title": "First Option"},
    {"const": "value2", "title": "Second Option"},
    {"const": "value3", "title": "Third Option"},
]

ENUMS_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
    },
}

RESOURCES = [
    types.Resource(
        uri="test://static-text",
        name="static-text",
        description="A text that never changes",
        mime_type="text/plain",
    ),
    types.Resource(
        uri="test://static-binary",
        name="static-binary",
        description="An image of one pixel",
        mime_type="image/png",
    ),
    types.Resource(
        uri="test://watched-resource",
        name="watched-resource",
        description="A text a client may subscribe to",
        mime_type="text/plain",
    ),
]

TEMPLATES = [
    types.ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="template",
        description="JSON made from the id in its address",
        mime_type="application/json",
    )
]


def _prompt(name: str, description: str, *arguments: str) -> types.Prompt:
    wanted = [types.PromptArgument(name=each, description=each, required=True) for each in arguments]
    return types.Prompt(name=name, description=description, arguments=wanted)


PROMPTS = [
    _prompt("test_simple_prompt", "One message without arguments"),
    _prompt("test_prompt_with_arguments", "One message with its arguments in it", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "A message that carries a resource", "resourceUri"),
    _prompt("test_prompt_with_image", "A message that carries an image"),
    _prompt("test_input_required_result_prompt", "A prompt that asks for its context first"),
]

"""The tools of the scripted console's servers: some that people would use, some that nobody wants to meet."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

HOSTILE_TEXT = (
    '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>\'"><svg onload=window.harmed=1>'
)
"""Markup that would run if any string of a tool became markup; ``window.harmed`` would tell."""

MANY = 5000


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


TOOLS: dict[str, list[Json]] = {
    "studio": [
        {
            "name": "count_words",
            "description": "Counts lines, words and characters of a text file.",
            "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
            "inputSchema": _object(
                {
                    "path": {
                        "type": "string",
                        "description": "The file. Takes an upload:// handle from studio_get_upload_url.",
                    }
                },
                "path",
            ),
        },
        {
            "name": "draw_landscape",
            "title": "Paint a landscape",
            "description": "Paints a landscape and keeps it as a PNG.",
            "annotations": {"readOnlyHint": False, "destructiveHint": False},
            "inputSchema": _object({"filename": {"type": "string", "default": "morning.png"}}, "filename"),
        },
        {
            "name": "import_catalogue",
            "description": "Imports a catalogue step by step, and says how far it is.",
            "annotations": {"destructiveHint": True, "title": "Catalogue import"},
            "inputSchema": _object(
                {
                    "steps": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 1000,
                        "default": 40,
                        "description": "How many.",
                    }
                },
                "steps",
            ),
        },
        {
            "name": "plan_trip",
            "description": "Plans a trip: dates, people, places to stop at.\n\nNothing is booked.",
            "annotations": {"readOnlyHint": True, "openWorldHint": True},
            "inputSchema": {
                **_object(
                    {
                        "destination": {
                            "type": "string",
                            "minLength": 2,
                            "description": "Town, or the code of an airport.",
                        },
                        "departure": {"type": "string", "format": "date-time"},
                        "travellers": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
                        "budget": {
                            "type": ["number", "null"],
                            "minimum": 0,
                            "description": "For all, in euros.",
                        },
                        "class": {
                            "type": "string",
                            "enum": ["economy", "premium", "business"],
                            "default": "economy",
                        },
                        "refundable": {"type": "boolean"},
                        "stops": {
                            "type": "array",
                            "items": {"$ref": "#/$defs/stop"},
                            "description": "On the way.",
                        },
                        "contact": {"$ref": "#/$defs/contact"},
                        "preferences": {"type": "object", "description": "Anything else."},
                    },
                    "destination",
                    "departure",
                    "travellers",
                ),
                "$defs": {
                    "stop": _object(
                        {"place": {"type": "string"}, "nights": {"type": "integer", "minimum": 0}}, "place"
                    ),
                    "contact": _object(
                        {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}}
                    ),
                },
            },
        },
        {
            "name": "report/weekly",
            "description": "Sales of a week, as a chart, a table and a few sentences.",
            "annotations": {"readOnlyHint": True},
            "inputSchema": _object(
                {"week": {"type": "integer", "minimum": 1, "maximum": 53, "default": 32}}, "week"
            ),
        },
        {
            "name": "say_no",
            "description": "Always reports an error.",
            "inputSchema": _object({"because": {"type": "string"}}),
        },
        {
            "name": "studio_get_upload_url",
            "description": "Hands out a URL for one upload.",
            "annotations": {"readOnlyHint": True},
            "inputSchema": {"type": "object"},
        },
    ],
    "browser": [
        {
            "name": f"browser_{action}",
            "description": about,
            "annotations": {"readOnlyHint": action in ("snapshot", "tabs"), "openWorldHint": True},
            "inputSchema": _object({"url": {"type": "string", "format": "uri"}}),
        }
        for action, about in (
            ("navigate", "Opens a page."),
            ("click", "Clicks on an element of the page."),
            ("snapshot", "What is on the page, as a tree."),
            ("take_screenshot", "A picture of the page."),
            ("tabs", "Lists tabs."),
        )
    ],
    "warehouse": [
        {
            "name": "list_orders",
            "description": "Orders of a customer, newest first.",
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
            "inputSchema": _object({"customer": {"type": "string"}}, "customer"),
        }
    ],
    "vast": [
        {
            "name": f"tool_{number:04d}",
            "description": f"The tool with the number {number}.",
            "inputSchema": {"type": "object"},
        }
        for number in range(MANY)
    ],
    "hostile": [
        {
            "name": "strike",
            "description": HOSTILE_TEXT,
            "annotations": {"readOnlyHint": True, "title": HOSTILE_TEXT},
            "inputSchema": _object(
                {
                    HOSTILE_TEXT: {"type": "string", "description": HOSTILE_TEXT, "format": HOSTILE_TEXT},
                    "__proto__": {"type": "string"},
                }
            ),
        },
        {"name": HOSTILE_TEXT, "description": "A name of markup.", "inputSchema": {"$ref": "#"}},
        {"name": "pour", "description": "Ten megabytes of text.", "inputSchema": {"type": "object"}},
    ],
}

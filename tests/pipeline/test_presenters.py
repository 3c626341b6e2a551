"""Presenters from their declarations: what each line becomes, and that all that is wrong is said at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from adapter.pipeline.presenters import PresentersInvalid, build
from adapter.rules.presenters import ui
from adapter.rules.presenters.presenters import Presenter
from adapter.rules.presenters.shapes import Check, StepsLeft
from adapter.settings.pipeline import PresenterSettings


def declared(**entry: Any) -> PresenterSettings:
    """One entry of ``presenters`` in the file."""
    return PresenterSettings.model_validate(entry)


def of_data(data: Any) -> str:
    return f"of {data['id']}"


def of_both(data: Any, ctx: Any) -> Any:
    return ui.summary(f"{data['id']} for {ctx['lang']}")


def affordance(data: Any, ctx: Any) -> dict[str, str]:
    return {"tool": "get", "reason": str(data["id"])}


def stars(value: Any) -> str:
    return "*" * len(value)


async def late(data: Any) -> str:
    return "late"


def nothing() -> None:
    """Takes no data."""


def named(data: Any, *, loud: bool) -> str:
    return "loud" if loud else "low"


CODE: Mapping[str, Callable[..., Any]] = {
    "app/views.py#of_data": of_data,
    "app/views.py#of_both": of_both,
    "app/views.py#affordance": affordance,
    "./stars.py": stars,
    "late.py": late,
    "nothing.py": nothing,
    "named.py": named,
    "c.py": str,
}


def load(reference: str) -> Callable[..., Any]:
    if reference not in CODE:
        raise FileNotFoundError(f"The script {reference} does not exist.")
    return CODE[reference]


def judge(schema: Mapping[str, Any]) -> Check:
    """As much of JSON Schema as these tests need: the integers among an object's properties."""
    if schema.get("type") != "object":
        raise ValueError("'type' is not 'object'.")

    def check(data: Any, _: StepsLeft) -> Iterator[tuple[Sequence[str | int], str]]:
        for name, declared in schema["properties"].items():
            if declared == {"type": "integer"} and not isinstance(data[name], int):
                yield [name], "type"

    return check


def built(**declarations: PresenterSettings) -> dict[str, Presenter]:
    return build(declarations, load, judge)


def texts(presenter: Presenter, data: Any, **given: Any) -> list[str]:
    return [
        block["text"]
        for block in presenter.present(data, {"lang": "en"}, **given).result(structured=True).content
    ]


# --- what becomes of a declaration ----------------------------------------------------------------------------


def test_v9_a_whole_declaration_becomes_a_presenter() -> None:
    """The one of the documentation, line by line."""
    made = built(
        user=declared(
            schema={"id": "int", "name": "string", "status": "string?", "ssn": "string?", "client": "any?"},
            embed={"client": "client"},
            rules=("Do not reveal e-mail",),
            ui=("app/views.py#of_both",),
            suggest=({"when": "status == 'overdue'", "tool": "billing.pay", "reason": "Pay now"},),
            limit=50,
            redact={"paths": ["ssn", "*.ssn"]},
        ),
        client=declared(rules=("Clients are people",)),
    )
    assert list(made) == ["user", "client"]
    data = {"id": 1, "name": "A", "status": "overdue", "ssn": "123", "client": {"ssn": "124"}, "hack": 1}
    said = texts(made["user"], data)
    assert json.loads(said[0]) == {
        "id": 1,
        "name": "A",
        "status": "overdue",
        "ssn": "[REDACTED]",
        "client": {"ssn": "[REDACTED]"},
    }
    assert said[1:] == [
        '<ui_passthrough type="summary">\n📊 **Summary**: 1 for en\n</ui_passthrough>',
        "<domain_rules>\n- Clients are people\n</domain_rules>",
        "<domain_rules>\n- Do not reveal e-mail\n</domain_rules>",
        "<action_suggestions>\n- billing.pay: Pay now\n</action_suggestions>",
    ]


def test_v11_code_takes_data_or_data_and_context() -> None:
    """As many as it declares; what is for collections is code too."""
    made = built(
        user=declared(
            rules=("app/views.py#of_data", "fixed"),
            suggest=("app/views.py#affordance",),
            collection_rules=("c.py",),
            collection_ui=("app/views.py#of_both",),
            collection_suggest=({"tool": "export", "reason": "All"},),
        )
    )
    user = made["user"]
    assert texts(user, {"id": 1})[1:] == [
        "<domain_rules>\n- of 1\n- fixed\n</domain_rules>",
        "<action_suggestions>\n- get: 1\n</action_suggestions>",
    ]
    assert [len(each) for each in (user.collection.rules, user.collection.ui, user.collection.suggest)] == [
        1,
        1,
        1,
    ]


def test_v10_a_json_schema_declares_as_well() -> None:
    """What it does not name is taken out, also of data that an embedding presenter has redacted before."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "ssn": {"type": "integer"}}}
    made = built(
        person=declared(json_schema=schema, rules=("R",)),
        file=declared(embed={"person": "person"}, redact={"paths": ["person.ssn"]}),
    )
    assert json.loads(texts(made["person"], {"id": 1, "ssn": 2, "hack": 3})[0]) == {"id": 1, "ssn": 2}
    assert texts(made["file"], {"person": {"id": 1, "ssn": 2}})[1:] == [
        "<domain_rules>\n- R\n</domain_rules>"
    ]


def test_w14_a_path_that_the_schema_does_not_have_lets_nothing_start() -> None:
    """Whoever misspells what is to be hidden hears of it, with the nearest name; without a schema nobody knows."""
    paths = ("ssn", "snn", "*.ssn")
    short = declared(schema={"id": "int", "ssn": "string"}, redact={"paths": paths})
    properties = {"type": "object", "properties": {"ssn": {"type": "string"}}}
    long = declared(json_schema=properties, redact={"paths": paths})
    free = declared(redact={"paths": paths})
    with pytest.raises(PresentersInvalid) as refused:
        build({"short": short, "long": long, "free": free}, load, judge)
    assert refused.value.problems == [
        (f"presenters.{name}.redact.paths[1]", "snn: snn is not declared in the schema; the nearest is ssn.")
        for name in ("short", "long")
    ]


def test_v16_the_censor_is_a_text_or_code() -> None:
    """Code is given the value."""
    made = built(
        text=declared(redact={"paths": ["ssn"], "censor": "***"}),
        code=declared(redact={"paths": ["ssn"], "censor": "./stars.py"}),
    )
    assert json.loads(texts(made["text"], {"ssn": "12345"})[0]) == {"ssn": "***"}
    assert json.loads(texts(made["code"], {"ssn": "12345"})[0]) == {"ssn": "*****"}


def test_a_presenter_may_be_embedded_by_several() -> None:
    """It is the same one, in whatever order they are declared."""
    made = built(a=declared(embed={"x": "c"}), b=declared(embed={"y": "c", "z": "a"}), c=declared())
    assert made["a"].embeds[0].presenter is made["b"].embeds[0].presenter is made["c"]
    assert made["b"].embeds[1].presenter is made["a"]


# --- what is wrong --------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """Each with its place."""
    with pytest.raises(PresentersInvalid) as invalid:
        built(
            user=declared(
                schema={"id": "integer!"},
                embed={"client": "nobody"},
                rules=("fine", "gone.py#fn"),
                suggest=({"when": "status = 1", "tool": "t", "reason": "r"},),
                collection_ui=("late.py",),
                collection_rules=("named.py",),
                redact={"paths": ["ssn", ".ssn", "a..b"], "censor": "nothing.py"},
            ),
            odd=declared(json_schema={"type": "array"}),
        )
    assert dict(invalid.value.problems) == {
        "presenters.user.schema": "A type must be a name, list[T], a mapping or a list of one; not 'integer!'.",
        "presenters.user.redact.paths[1]": "A path must have a form such as a.b, *.b, a[*].b or a[0].b; not '.ssn'.",
        "presenters.user.redact.paths[2]": "A path must have a form such as a.b, *.b, a[*].b or a[0].b; not 'a..b'.",
        "presenters.user.redact.censor": "The function must take (value).",
        "presenters.user.rules[1]": "The script gone.py#fn does not exist.",
        "presenters.user.suggest[0].when": "The condition has invalid text at character 7.",
        "presenters.user.embed.client": "The presenter 'nobody' does not exist.",
        "presenters.user.collection_ui[0]": "A presenter's function must be a plain function, without async.",
        "presenters.user.collection_rules[0]": "The function must take (data) or (data, ctx).",
        "presenters.odd.json_schema": "'type' is not 'object'.",
    }
    assert len(invalid.value.problems) == 10
    assert "presenters.odd.json_schema: 'type' is not 'object'." in str(invalid.value)


def test_presenters_that_embed_each_other_are_refused() -> None:
    """The circle is shown, once."""
    with pytest.raises(PresentersInvalid) as invalid:
        built(a=declared(embed={"x": "b"}), b=declared(embed={"y": "c"}), c=declared(embed={"z": "b"}))
    assert invalid.value.problems == [
        ("presenters.c.embed.z", "Presenters cannot embed themselves: b → c → b.")
    ]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"ui": [{"type": "markdown", "content": "hi"}]}, ("ui", 0)),
        ({"ui": ["just a text"]}, ("ui", 0)),
        ({"suggest": [{"tool": "t"}]}, ("suggest", 0, "as section", "reason")),
        ({"suggest": [{"tool": "t", "reason": "r", "if": "x"}]}, ("suggest", 0, "as section", "if")),
        ({"suggest": ["a text"]}, ("suggest", 0, "as text")),
        ({"limit": 0}, ("limit",)),
        ({"schema": {"id": "int"}, "json_schema": {"type": "object"}}, ()),
    ],
)
def test_a_presenter_that_is_written_wrong_is_refused(
    entry: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    """The settings know what an entry may hold, so nothing behind them looks again."""
    with pytest.raises(ValidationError) as refused:
        declared(**entry)
    assert place in [each["loc"] for each in refused.value.errors()]

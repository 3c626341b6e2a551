"""A variable fills in text, so every setting that takes a number, or true and false, takes the text of it as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from adapter.settings.root import Settings

VALUES = (True, False, 1, 3, 600, 8000, 0.5)


def sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections(argument)


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """All settings, by section and name."""
    seen: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = [Settings]
    while waiting:
        section = waiting.pop()
        if section not in seen:
            seen.add(section)
            for name, field in section.model_fields.items():
                waiting += sections(field.annotation)
                yield f"{section.__name__}.{name}", field


def test_the_text_of_a_value_is_that_value() -> None:
    """As ``port: "${PORT}"`` has it."""
    compared = 0
    for name, field in fields():
        kind: Any = field.annotation
        read: TypeAdapter[Any] = TypeAdapter(Annotated[(kind, *field.metadata)] if field.metadata else kind)
        for value in VALUES:
            try:
                taken = read.validate_python(value)
            except ValidationError:
                continue
            # What may be any value keeps its text, which is read by its declared type.
            if kind is not Any and type(taken) is type(value):
                assert read.validate_python(str(value).lower()) == taken, name
                compared += 1
    assert compared > 300

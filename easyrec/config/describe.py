"""Options of a configuration class in words, for people who choose among them."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from easyrec.config.base import OneOf

_WORDS = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Any: "anything",
}


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: Its key.
        type: What it takes, in words.
        required: Whether it must be given.
        default: Its default as YAML would write it; "" for none.
        description: What it does.
    """

    name: str
    type: str
    required: bool
    default: str
    description: str


def options(config: type[BaseModel]) -> list[Option]:
    """The options of a class beside `type`, its own before those it shares with others."""
    own = [name for name in config.model_fields if name in config.__annotations__]
    inherited = [name for name in config.model_fields if name not in own]
    return [_option(name, config.model_fields[name]) for name in [*own, *inherited] if name != "type"]


def _option(name: str, field: Any) -> Option:
    return Option(
        name=name,
        type=type_words(field.annotation, field.metadata),
        required=field.is_required(),
        default=""
        if field.is_required() or field.default is None
        else _value(field.get_default(call_default_factory=True)),
        description=(field.description or "").replace("\n", " "),
    )


def type_words(annotation: Any, metadata: Any = ()) -> str:
    """What a value of this type is, in words."""
    for item in metadata:
        if isinstance(item, OneOf):
            return item.registry.kind
        accepted = getattr(item, "json_schema_input_type", PydanticUndefined)
        if accepted not in (PydanticUndefined, Any):
            return type_words(accepted)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_words(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        parts = [type_words(part) for part in arguments if part is not type(None)]
        return " or ".join(dict.fromkeys(parts))
    if origin is Literal:
        return ", ".join(str(value) for value in arguments)
    if origin in (list, tuple):
        return f"list of {type_words(arguments[0])}"
    if origin is dict:
        return f"mapping to {type_words(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model_words(annotation)
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _model_words(model: type[BaseModel]) -> str:
    """The `type` of a class, or the keys of one that has none."""
    field = model.model_fields.get("type")
    if field is not None and isinstance(field.default, str) and len(get_args(field.annotation)) == 1:
        return field.default
    return "{" + ", ".join(model.model_fields) + "}"


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        return str(value.model_dump().get("type", "{...}"))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value) if isinstance(value, str) and not value.isalnum() else str(value)

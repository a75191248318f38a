"""What every configuration class shares: strictness, and unions that plug-ins can join."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from easyrec.errors import nearest
from easyrec.registry import Registry

T = TypeVar("T")

Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, lt=1)]


class StrictModel(BaseModel):
    """A frozen configuration object that refuses unknown keys and documents itself from its attributes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )


class TypedConfig(StrictModel):
    """A configuration whose `type` selects a member of a family; each member narrows `type` to its own name."""

    type: str


class OneOf:
    """Annotation that validates a mapping against the class its `type` selects in a registry.

    The members are looked up when a value is validated and when a JSON Schema is made, not when the module is
    imported, so parts that plug-ins register later are validated like the built-in ones. A bare string `name`
    stands for `{type: name}`.
    """

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        members = [handler(part.config.__pydantic_core_schema__) for part in self.registry]
        simple = [
            part.name
            for part in self.registry
            if all(
                name == "type" or not field.is_required() for name, field in part.config.model_fields.items()
            )
        ]
        return {"anyOf": [*members, {"enum": simple}]}

    def _validate(self, value: Any) -> Any:
        if isinstance(value, self.registry.base):
            return value
        if isinstance(value, str):
            value = {"type": value}
        kind = self.registry.kind
        if not isinstance(value, dict):
            raise PydanticCustomError(
                "one_of", "a {kind} is a mapping with a `type`, such as {{type: {example}}}",
                {"kind": kind, "example": next(iter(self.registry.names()), "name")},
            )  # fmt: skip
        name = value.get("type")
        if name is None:
            raise PydanticCustomError(
                "one_of_missing", "`type` is missing; it says which {kind} this is.{hint}",
                {"kind": kind, "hint": nearest("", self.registry.names())},
            )  # fmt: skip
        if name not in self.registry:
            raise PydanticCustomError(
                "one_of_unknown", "unknown {kind} {name}.{hint}",
                {"kind": kind, "name": repr(name), "hint": nearest(str(name), self.registry.names())},
            )  # fmt: skip
        return self.registry[name].config.model_validate(value)

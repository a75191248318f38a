"""What every configuration class shares: strictness, and unions that plug-ins can join."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from easyrec.registry import Registry

T = TypeVar("T")

FAMILY_KEY = "x-family"
"""Key that marks a family in a raw JSON Schema."""

Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, lt=1)]


class StrictModel(BaseModel):
    """A frozen configuration object that refuses unknown keys and documents itself from its attributes."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        """Python takes true for 1; here it becomes text where a number is wanted, and is refused there."""
        if not isinstance(values, dict):
            return values
        wrong = {
            name: _spelled(values[name])
            for name, field in cls.model_fields.items()
            if _holds_bool(values.get(name))
            and _takes(field.annotation, (int, float))
            and not _takes(field.annotation, (bool, Any))
        }
        return {**values, **wrong} if wrong else values


def _holds_bool(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(item, bool) for item in items)


def _spelled(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_spelled(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else value


def _takes(annotation: Any, wanted: tuple[Any, ...]) -> bool:
    """Whether one of `wanted` is among the types in an annotation."""
    return annotation in wanted or any(_takes(argument, wanted) for argument in get_args(annotation))


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
        """A mark in place of the members; `easyrec.config.schema` puts the members there."""
        return {FAMILY_KEY: self.registry.kind}

    def _validate(self, value: Any) -> Any:
        if isinstance(value, self.registry.base):
            return value
        if isinstance(value, str):
            value = {"type": value}
        kind = self.registry.kind
        if not isinstance(value, dict):
            raise PydanticCustomError(
                "one_of", "a {kind} is a mapping with a `type`, such as {example}",
                {"kind": kind, "example": f"{{type: {next(iter(self.registry.names()), 'name')}}}"},
            )  # fmt: skip
        name = value.get("type")
        if name is None:
            raise PydanticCustomError(
                "one_of_missing", "`type` is missing; it says which {kind} this is.{hint}",
                {"kind": kind, "hint": self.registry.hint("")},
            )  # fmt: skip
        if not isinstance(name, str) or name not in self.registry:
            raise PydanticCustomError(
                "one_of_unknown", "unknown {kind} {name}.{hint}",
                {"kind": kind, "name": repr(name), "hint": self.registry.hint(str(name))},
            )  # fmt: skip
        return self.registry[name].config.model_validate(value)

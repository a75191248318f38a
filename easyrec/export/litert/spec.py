"""`litert/litert.json`: all that computing without TensorFlow needs to know beside arrays and weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from easyrec.config.base import StrictModel
from easyrec.config.features import Pooling, Side
from easyrec.errors import BundleError
from easyrec.features.inputs import InputSpec, Kind, Part, Role
from easyrec.features.outputs import FeatureSchema, IdsOutput, NumbersOutput

SPEC = "litert.json"
DENSE, USER_TOWER, ITEM_TOWER, PAIR = "dense", "user_tower", "item_tower", "pair"
USER_HALF, ITEM_HALF, HALVES = "user_half", "item_half", "halves"
VECTOR = "vector"


class TwinInput(StrictModel):
    """An `InputSpec`."""

    name: str
    column: str
    kind: Kind
    side: Side
    list: bool = False
    role: Role = "category"
    part: Part = "values"
    aligned_with: str | None = None
    feature: str = ""


class TwinOutput(StrictModel):
    """What of an `IdsOutput` (`width` 0) or a `NumbersOutput` matters for encoding."""

    side: Side
    width: int = 0
    table: str = ""
    rows: int = 0
    dim: int = 0
    pooling: Pooling | None = None
    sequence: bool = False
    max_length: int | None = None
    weighted: bool = False


class TwinEntry(StrictModel):
    """One feature."""

    name: str
    config: dict[str, Any]
    """Its options."""
    inputs: list[TwinInput]
    state: dict[str, Any] = Field(default_factory=dict)
    """What its transform learned."""
    vocabulary: str | None = None
    """Table of its vocabulary."""
    output: TwinOutput

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        """The inputs as features know them."""
        return tuple(InputSpec(**entry.model_dump()) for entry in self.inputs)


class VocabularyEntry(StrictModel):
    """One vocabulary."""

    config: dict[str, Any]
    """Where ids come from."""
    text: str | None = None
    """Stem of the files with the values by fingerprint (`.keys.npy` and `.ids.npy`), if text is looked up."""
    integers: str | None = None
    """Stem of the files with the values as integers, if integers are looked up."""


class FieldEntry(StrictModel):
    """One feature in a fused embedding table."""

    feature: str
    offset: int
    """First row of its table in the fused one."""
    pooling: Pooling | None = None
    """None for one id a row."""
    sequence: bool = False
    max_length: int = 0
    weighted: bool = False


class GroupEntry(StrictModel):
    """One fused embedding table, and one of linear weights where there are any."""

    name: str
    dim: int
    singles: list[FieldEntry]
    multis: list[FieldEntry]
    tables: dict[Literal["embedding", "linear"], str]
    """Files."""


class FunctionEntry(StrictModel):
    """One LiteRT model."""

    file: str
    inputs: dict[str, str]
    """LiteRT's name of each input that the model reads."""
    outputs: dict[str, str]
    """LiteRT's name of each output."""
    shared: list[str] = Field(default_factory=list)
    """Inputs of one row, which stands for all."""


class LiteRTSpec(StrictModel):
    """All of it."""

    version: Literal[1, 2] = 2
    plugins: list[str] = Field(default_factory=list)
    """Modules that register twins."""
    features: list[TwinEntry]
    """In the order of the configuration."""
    vocabularies: dict[str, VocabularyEntry]
    """By table."""
    stages: dict[Literal["user", "item", "pair"], list[str]]
    """Features by stage."""
    groups: list[GroupEntry]
    linear_units: int
    functions: dict[str, FunctionEntry]

    @property
    def schema_of_features(self) -> FeatureSchema:
        """The outputs of all features."""
        return FeatureSchema(tuple(_output(entry) for entry in self.features))

    def write(self, folder: Path) -> None:
        """Writes it into the folder."""
        (folder / SPEC).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> LiteRTSpec:
        """Reads it.

        Raises:
            BundleError: There is none, or it cannot be used.
        """
        try:
            return cls.model_validate_json((folder / SPEC).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise BundleError(
                f"the bundle {folder.parent} has no LiteRT model; export it again with `export: {{litert: true}}`, or "
                "serve it with `runtime: tensorflow`"
            ) from error
        except (OSError, ValidationError) as error:
            raise BundleError(f"{folder / SPEC} cannot be used: {error}") from error


def output_entry(output: IdsOutput | NumbersOutput) -> TwinOutput:
    """An output as the file has it."""
    if isinstance(output, NumbersOutput):
        return TwinOutput(side=output.side, width=output.width)
    names = set(TwinOutput.model_fields) - {"width"}
    return TwinOutput(**{name: getattr(output, name) for name in names})


def input_entry(spec: InputSpec) -> TwinInput:
    """An input as the file has it."""
    return TwinInput(**{name: getattr(spec, name) for name in TwinInput.model_fields})


def _output(entry: TwinEntry) -> IdsOutput | NumbersOutput:
    values: Mapping[str, Any] = entry.output.model_dump()
    if values["width"]:
        return NumbersOutput(entry.name, values["width"], values["side"])
    return IdsOutput(entry.name, **{name: value for name, value in values.items() if name != "width"})

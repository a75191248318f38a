"""The whole file: one pipeline from data to bundle."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PrivateAttr, field_validator

from easyrec.config.base import OneOf, StrictModel
from easyrec.config.data import DataConfig
from easyrec.config.embedding import EmbeddingConfig
from easyrec.config.features import FEATURES, FeatureConfig
from easyrec.config.locations import Locations
from easyrec.config.models import MODELS, ModelConfig
from easyrec.config.tasks import TASKS, TaskConfig
from easyrec.config.training import TrainingConfig

_FEWEST_RESAMPLES = 40


class EvaluationConfig(StrictModel):
    """How the trained model is measured."""

    k: tuple[int, ...] = (5, 10, 20)
    """Lengths of ranked lists."""
    ranking: bool | None = None
    """Rank the whole catalogue for each user; done when user and item keys are known unless said otherwise."""
    relevant: str | None = None
    """Which evaluation rows are relevant in ranked lists; the first task's label unless given."""
    baselines: list[str] = [
        "popularity",
        "recent_popularity",
        "content_based",
        "co_occurrence",
        "last_item",
        "random",
    ]
    """What stands beside the model in every report, as far as the data allow."""
    batch_size: int = Field(8192, ge=1)
    """Rows predicted at once."""
    resamples: int | None = Field(None, ge=0)
    """Bootstrap resamples for confidence intervals; 0 for none, 1000 unless given (200 for over a million rows)."""
    max_users: int | None = Field(None, ge=1)
    """Rank for at most this many users, drawn at random."""

    @field_validator("resamples")
    @classmethod
    def _enough_for_the_tails(cls, value: int | None) -> int | None:
        if value is not None and 0 < value < _FEWEST_RESAMPLES:
            raise ValueError(
                f"the ends of a 95 % interval need at least {_FEWEST_RESAMPLES} resamples; 0 computes no intervals"
            )
        return value


class ExportConfig(StrictModel):
    """What goes into the bundle."""

    checkpoint: str = "best"
    """`best`, `last`, or a step."""
    users: bool = True
    """Keep each user's latest features and seen items, so that the bundle can recommend by user id."""
    signature_examples: int = Field(32, ge=1)
    """Rows stored with their scores, replayed whenever the bundle is loaded."""
    litert: bool = False
    """Also write the model for LiteRT, so that it can be served without TensorFlow; needs the extra `litert`."""


class PipelineConfig(StrictModel):
    """One YAML file: data, features, model, tasks, training, evaluation, export."""

    name: str = Field("pipeline", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the pipeline, at most 100 letters, digits, dots, dashes and underscores."""
    plugins: tuple[str, ...] = ()
    """Python modules that register further features, models, losses, metrics or readers."""
    data: DataConfig
    """Where the data are."""
    features: dict[str, Annotated[FeatureConfig, OneOf(FEATURES)]] = Field(min_length=1)
    """Features by name; a name with `*`, `?` or `{a,b}` stands for all columns it matches."""
    model: Annotated[ModelConfig, OneOf(MODELS)]
    """The architecture."""
    tasks: dict[str, Annotated[TaskConfig, OneOf(TASKS)]] = Field(min_length=1)
    """What is predicted, by name."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Defaults of embedding tables."""
    training: TrainingConfig = TrainingConfig()
    """How it is trained."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How it is measured."""
    export: ExportConfig = ExportConfig()
    """What is exported."""
    output: str = "runs"
    """Folder that runs are written to, each in a folder of its own."""

    _locations: Locations = PrivateAttr(default_factory=Locations)

    @property
    def locations(self) -> Locations:
        """Where each value was written; empty for a configuration made in Python."""
        return self._locations

    def with_locations(self, locations: Locations) -> PipelineConfig:
        """The same configuration, written at `locations`."""
        copy = self.model_copy()
        copy._locations = locations
        return copy

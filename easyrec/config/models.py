"""Model architectures: their hyperparameters. One class per architecture, joined by the registry `MODELS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from easyrec.config.base import Fraction, TypedConfig
from easyrec.config.features import FeatureConfig, SequenceFeature
from easyrec.config.patterns import covers
from easyrec.registry import Registry

Activation = Literal["relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "prelu", "dice", "linear"]


class ModelConfig(TypedConfig):
    """Options that every model has."""

    fits: ClassVar[tuple[str, ...]] = ("binary", "regression", "multiclass")
    """Task types it can be trained on."""
    max_tasks: ClassVar[int | None] = None
    """How many tasks it can be trained on at once; None for any number."""
    towers: ClassVar[bool] = False
    """Whether it has a user and an item tower, which retrieval tasks need."""
    equal_widths: ClassVar[bool] = False
    """Whether it combines embeddings with each other, so that all must have one width."""

    features: list[str] | None = None
    """Names or patterns of the features it uses; all unless given."""

    def misfit(self, features: Mapping[str, FeatureConfig], widths: Mapping[str, int]) -> Iterator[str]:
        """What the model lacks in the features it is given; nothing if it can use them.

        Args:
            features: The features it uses. Before the data are known, patterns stand for what they match and sides
                may be None.
            widths: The width of the embedding of each feature that has one.
        """
        if self.equal_widths:
            yield from _unequal(self.type, widths)
        if self.towers:
            yield from _missing_sides(self.type, features)


def _unequal(model: str, widths: Mapping[str, int]) -> Iterator[str]:
    if not widths:
        yield (
            f"{model} combines embeddings, but no feature has one; add an `id` feature, or give a number `buckets` "
            "or `embedding: true`"
        )
    by_width: dict[int, str] = {}
    for name, width in widths.items():
        by_width.setdefault(width, name)
    if len(by_width) > 1:
        found = ", ".join(f"{width} ({name!r})" for width, name in by_width.items())
        yield f"{model} combines embeddings with each other, so all must have one width; got {found}"


def _missing_sides(model: str, features: Mapping[str, FeatureConfig]) -> Iterator[str]:
    sides = {feature.side for feature in features.values()}
    if None in sides:
        return
    for tower, known in (("user", {"user", "context"}), ("item", {"item"})):
        if not sides & known:
            yield (
                f"{model} needs features of the {tower}, but none is of `side: {tower}`; set `side` on features, or "
                f"name the {tower} key in `data.keys.{tower}`"
            )


class DeepModelConfig(ModelConfig):
    """Options of models with a multi-layer perceptron."""

    hidden_units: tuple[PositiveInt, ...] = (256, 128, 64)
    """Units of each hidden layer."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    dropout: Fraction = 0.0
    """Share of hidden units dropped in training."""
    batch_norm: bool = False
    """Batch normalisation after each hidden layer, before the activation."""
    l2: float = Field(0.0, ge=0)
    """L2 penalty on the kernels of the hidden layers."""


class LogisticRegressionConfig(ModelConfig):
    """A weight per feature value: the linear baseline."""

    type: Literal["logistic_regression"] = "logistic_regression"


class FactorizationMachineConfig(ModelConfig):
    """Linear terms and all pairwise interactions (Rendle 2010)."""

    equal_widths: ClassVar[bool] = True
    type: Literal["fm"] = "fm"


class WideAndDeepConfig(DeepModelConfig):
    """A linear and a deep part, trained together (Cheng et al. 2016)."""

    type: Literal["wide_and_deep"] = "wide_and_deep"
    wide_features: list[str] | None = None
    """Names or patterns of the features of the linear part; all unless given."""


class DeepFMConfig(DeepModelConfig):
    """A factorization machine and a deep part over the same embeddings (Guo et al. 2017)."""

    equal_widths: ClassVar[bool] = True
    type: Literal["deepfm"] = "deepfm"


class DCNv2Config(DeepModelConfig):
    """Explicit bounded-degree crosses and a deep part (Wang et al. 2021)."""

    type: Literal["dcn_v2"] = "dcn_v2"
    cross_layers: PositiveInt = 3
    """Number of cross layers."""
    low_rank: PositiveInt | None = None
    """Rank of the cross matrices; full rank unless given."""
    structure: Literal["parallel", "stacked"] = "parallel"
    """Deep part beside the crosses or on top of them."""


class DLRMConfig(DeepModelConfig):
    """Dot products between embeddings and encoded numbers (Naumov et al. 2019)."""

    equal_widths: ClassVar[bool] = True
    type: Literal["dlrm"] = "dlrm"
    bottom_units: tuple[PositiveInt, ...] = (64,)
    """Hidden layers that encode the numbers, before a last one of the embeddings' width."""


class DINConfig(DeepModelConfig):
    """Attention of the candidate item over the behaviour sequence (Zhou et al. 2018)."""

    type: Literal["din"] = "din"
    attention_units: tuple[PositiveInt, ...] = (80, 40)
    """Hidden layers of the attention's scoring network."""
    attention_activation: Activation = "dice"
    """Activation of the attention's scoring network."""
    softmax: bool = False
    """Normalise the attention weights; the paper does not."""

    def misfit(self, features: Mapping[str, FeatureConfig], widths: Mapping[str, int]) -> Iterator[str]:
        """A sequence whose item is a feature too is what attention is about."""
        yield from super().misfit(features, widths)
        sequences = {
            name: feature.of for name, feature in features.items() if isinstance(feature, SequenceFeature)
        }
        if not any(sequences.values()):
            yield (
                "din attends over a sequence of the candidate's kind; add one, such as "
                "`recent: {type: sequence, of: movie_id}`"
            )
        for name, of in sequences.items():
            if of is not None and of not in features and not any(covers(known, of) for known in features):
                yield f"din compares the sequence {name!r} with {of!r}, so `model.features` must list both"


class MMoEConfig(DeepModelConfig):
    """Multi-gate mixture of experts: several tasks share experts through gates of their own (Ma et al. 2018)."""

    type: Literal["mmoe"] = "mmoe"
    experts: PositiveInt = 4
    """Number of experts; each is a network of `hidden_units`."""
    tower_units: tuple[PositiveInt, ...] = (64,)
    """Hidden layers of each task's tower."""


class TwoTowerConfig(DeepModelConfig):
    """A user tower and an item tower that meet in a dot product, to find candidates (Yi et al. 2019)."""

    fits: ClassVar[tuple[str, ...]] = ("retrieval", "binary", "regression")
    towers: ClassVar[bool] = True
    type: Literal["two_tower"] = "two_tower"
    output_dim: PositiveInt = 32
    """Width of the vectors that both towers end in."""
    normalize: bool = True
    """Scale both vectors to length one."""
    temperature: float = Field(0.1, gt=0)
    """Dot products are divided by this."""


MODELS: Registry[ModelConfig] = Registry("model", ModelConfig)
MODELS.register(
    "logistic_regression", LogisticRegressionConfig, "easyrec.models.logistic_regression:LogisticRegression"
)
MODELS.register("fm", FactorizationMachineConfig, "easyrec.models.fm:FactorizationMachine")
MODELS.register("wide_and_deep", WideAndDeepConfig, "easyrec.models.wide_and_deep:WideAndDeep")
MODELS.register("deepfm", DeepFMConfig, "easyrec.models.deepfm:DeepFM")
MODELS.register("dcn_v2", DCNv2Config, "easyrec.models.dcn_v2:DCNv2")
MODELS.register("dlrm", DLRMConfig, "easyrec.models.dlrm:DLRM")
MODELS.register("din", DINConfig, "easyrec.models.din:DIN")
MODELS.register("mmoe", MMoEConfig, "easyrec.models.mmoe:MMoE")
MODELS.register("two_tower", TwoTowerConfig, "easyrec.models.two_tower:TwoTower")

"""Model architectures: their hyperparameters. One class per architecture, joined by the registry `MODELS`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from easyrec.config.base import Fraction, TypedConfig
from easyrec.registry import Registry

Activation = Literal["relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "prelu", "dice", "linear"]


class ModelConfig(TypedConfig):
    """Options that every model has."""

    features: list[str] | None = None
    """Names or patterns of the features it uses; all unless given."""


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

    type: Literal["fm"] = "fm"


class WideAndDeepConfig(DeepModelConfig):
    """A linear and a deep part, trained together (Cheng et al. 2016)."""

    type: Literal["wide_and_deep"] = "wide_and_deep"
    wide_features: list[str] | None = None
    """Names or patterns of the features of the linear part; all unless given."""


class DeepFMConfig(DeepModelConfig):
    """A factorization machine and a deep part over the same embeddings (Guo et al. 2017)."""

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


class MMoEConfig(DeepModelConfig):
    """Multi-gate mixture of experts: several tasks share experts through gates of their own (Ma et al. 2018)."""

    type: Literal["mmoe"] = "mmoe"
    experts: PositiveInt = 4
    """Number of experts; each is a network of `hidden_units`."""
    tower_units: tuple[PositiveInt, ...] = (64,)
    """Hidden layers of each task's tower."""


class TwoTowerConfig(DeepModelConfig):
    """A user tower and an item tower that meet in a dot product, to find candidates (Yi et al. 2019)."""

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

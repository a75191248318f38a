"""Training: optimizers, schedules, checkpoints, stopping."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from easyrec.config.base import PositiveFraction, StrictModel


class ConstantSchedule(StrictModel):
    """The learning rate stays."""

    type: Literal["constant"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the rate grows from 0, linearly."""


class CosineSchedule(StrictModel):
    """The learning rate falls along half a cosine."""

    type: Literal["cosine"] = "cosine"
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the rate grows from 0, linearly."""
    decay_steps: int | None = Field(None, ge=1)
    """Steps of the fall after warm-up; to the end of training unless given."""
    alpha: float = Field(0.0, ge=0, le=1)
    """Share of the rate that is left at the end."""


class ExponentialSchedule(StrictModel):
    """The learning rate is multiplied by `decay_rate` every `decay_steps`."""

    type: Literal["exponential"] = "exponential"
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the rate grows from 0, linearly."""
    decay_steps: int = Field(ge=1)
    """Steps between multiplications."""
    decay_rate: float = Field(gt=0, le=1)
    """The factor."""
    staircase: bool = False
    """Multiply at once instead of continuously."""


class StepSchedule(StrictModel):
    """The learning rate is multiplied by given factors from given steps on."""

    type: Literal["step"] = "step"
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the rate grows from 0, linearly."""
    boundaries: list[int] = Field(min_length=1)
    """Steps at which the factor changes, increasing."""
    factors: list[Annotated[float, Field(ge=0)]] = Field(min_length=1)
    """Factor of the base rate from each boundary on."""

    @model_validator(mode="after")
    def _boundaries_fit_factors(self) -> StepSchedule:
        if len(self.boundaries) != len(self.factors):
            raise ValueError(
                f"give one factor per boundary; there are {len(self.boundaries)} `boundaries` and "
                f"{len(self.factors)} `factors`"
            )
        if any(low >= high for low, high in zip(self.boundaries, self.boundaries[1:], strict=False)):
            raise ValueError(f"`boundaries` must increase, got {self.boundaries}")
        return self


def _named(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


_Schedules = ConstantSchedule | CosineSchedule | ExponentialSchedule | StepSchedule
Schedule = Annotated[
    Annotated[_Schedules, Field(discriminator="type")],
    BeforeValidator(_named, json_schema_input_type=_Schedules | Literal["constant", "cosine"]),
]
DenseOptimizer = Literal["adam", "adamw", "sgd", "adagrad", "rmsprop", "nadam", "adamax", "ftrl", "lion"]
Strategy = Literal["auto", "local", "mirrored", "multi_worker", "parameter_server"]
Device = Annotated[str, Field(pattern=r"^(cpu|gpu)(:\d+)?$")]
EmbeddingOptimizer = Literal["adagrad", "row_wise_adagrad", "lazy_adam", "sgd"]


class DenseOptimizerConfig(StrictModel):
    """The Keras optimizer of all weights but embeddings."""

    type: DenseOptimizer = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    """Base learning rate, before the schedule."""
    options: dict[str, Any] = {}
    """Further arguments of the Keras optimizer, such as `{momentum: 0.9}`."""


class EmbeddingOptimizerConfig(StrictModel):
    """The row-sparse optimizer of embedding tables: rows that a batch does not use are not touched."""

    type: EmbeddingOptimizer = "adagrad"
    learning_rate: float = Field(0.02, gt=0)
    """Base learning rate, before the schedule."""
    initial_accumulator: float = Field(1e-6, ge=0)
    """Where Adagrad's sums of squares start. Rows' gradients are about 1 / batch size: 0.1 would freeze them."""
    beta_1: float = Field(0.9, ge=0, lt=1)
    """Decay of lazy Adam's first moment."""
    beta_2: float = Field(0.999, ge=0, lt=1)
    """Decay of lazy Adam's second moment."""
    epsilon: float = Field(1e-7, gt=0)
    """Added to the denominator."""


class OptimizerConfig(StrictModel):
    """Two optimizers: dense weights and embedding tables."""

    dense: Annotated[
        DenseOptimizerConfig,
        BeforeValidator(_named, json_schema_input_type=DenseOptimizerConfig | DenseOptimizer),
    ] = DenseOptimizerConfig()
    """For dense weights."""
    embedding: Annotated[
        EmbeddingOptimizerConfig,
        BeforeValidator(_named, json_schema_input_type=EmbeddingOptimizerConfig | EmbeddingOptimizer),
    ] = EmbeddingOptimizerConfig()
    """For embedding tables."""
    schedule: Schedule = ConstantSchedule()
    """Factor over time on both learning rates."""
    clip_norm: float | None = Field(None, gt=0)
    """Gradients of dense weights are scaled down so that their joint norm is at most this."""
    clip_embedding_norm: float | None = Field(None, gt=0)
    """The gradient of each embedding row is scaled down so that its norm is at most this."""


class EarlyStoppingConfig(StrictModel):
    """End training when an evaluation metric no longer improves."""

    metric: str | None = None
    """Which one, such as `liked/auc`; the first task's first metric unless given."""
    patience: int = Field(2, ge=1)
    """Evaluations without improvement before training ends."""
    min_delta: float = Field(0.0, ge=0)
    """What counts as an improvement."""


class CheckpointConfig(StrictModel):
    """When the state of training is saved."""

    every_steps: int | None = Field(None, ge=1)
    """Save every so many steps, beside each end of an epoch."""
    keep: int = Field(2, ge=1)
    """How many of the latest are kept; the best one is kept beside them."""
    metric: str | None = None
    """What `best` means, such as `liked/auc`; the first task's first metric unless given."""


class ShardsConfig(StrictModel):
    """Training data encoded once into shards; a cluster always trains from them."""

    path: str | None = None
    """Folder or URL that all machines of a cluster reach; inside the run's folder unless given."""
    local: bool = False
    """Train from shards on one machine, too: later epochs need no reading and encoding."""
    split_batches: int | None = Field(None, ge=1)
    """Batches of a split, the unit of work that is handed to a worker; at most 32 unless given."""


class ClusterConfig(StrictModel):
    """Training on many machines."""

    start_timeout: float = Field(120.0, gt=0)
    """Seconds until every role must have appeared."""
    mode: Literal["asynchronous", "synchronous"] = "asynchronous"
    """Workers update the weights as they come, or all together: one update from a batch of each worker."""
    split_timeout: float | None = Field(None, gt=0)
    """Seconds after which a split is taken to hang; ten times the usual, a minute at least, unless given."""
    staleness: int | None = Field(None, ge=1)
    """No split is begun before the one so many places ahead is done; 1 trains one split after the other."""
    streams: int | None = Field(None, ge=1)
    """Batches that a worker trains on at the same time; 3 unless given, 1 with `staleness: 1`."""
    transfer: Literal["float32", "bfloat16"] = "float32"
    """Type of rows and their gradients on the way between workers and servers; `bfloat16` moves half the bytes."""

    @property
    def concurrent_batches(self) -> int:
        """`streams`, chosen unless it is given."""
        return self.streams or (1 if self.staleness == 1 else 3)

    @model_validator(mode="after")
    def _only_asynchronous_work_runs_ahead(self) -> ClusterConfig:
        for name in ("staleness", "streams"):
            if self.mode == "synchronous" and getattr(self, name):
                raise ValueError(
                    f"`{name}` is about work that runs ahead; with `mode: synchronous` nothing does, so give one of "
                    "the two"
                )
        return self


class TrainingConfig(StrictModel):
    """How the model is trained."""

    batch_size: int = Field(4096, ge=1)
    """Examples in a step."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the dense part computes with; weights, losses and tables stay float32. `float16` scales the loss."""
    synchronized_batch_norm: bool = False
    """With `mirrored` and `multi_worker`: batch normalisation over the rows of all replicas instead of each one's."""
    accumulate: int = Field(1, ge=1)
    """Parts that a batch is computed in, one after the other, so that activations take less memory."""
    epochs: int = Field(1, ge=1)
    """Passes over the training data."""
    max_steps: int | None = Field(None, ge=1)
    """End after so many steps, whatever `epochs` says."""
    seed: int = Field(0, ge=0, le=2**32 - 1)
    """Seed of weights, shuffling, dropout and sampling; the same seed gives the same run."""
    strategy: Strategy = "auto"
    """Where it runs; `auto` decides by `TF_CONFIG` and the devices that are there, and says why."""
    devices: tuple[Device, ...] = ()
    """Devices that must be there, such as `gpu` or `gpu:1`; `mirrored` trains on these, else on all GPUs."""
    shards: ShardsConfig = ShardsConfig()
    """Training data encoded once into shards."""
    cluster: ClusterConfig = ClusterConfig()
    """Time-outs and bounds of a cluster."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizers, schedule, clipping."""
    evaluate_every: int | None = Field(None, ge=1)
    """Evaluate every so many steps, beside each end of an epoch."""
    early_stopping: EarlyStoppingConfig | None = None
    """End training when a metric stops improving."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written, and which are kept."""
    log_every: int = Field(50, ge=1)
    """Steps between lines of the log."""
    tensorboard: bool = False
    """Write TensorBoard scalars beside the log."""
    warm_start: str | None = None
    """A run or checkpoint whose weights training starts from; rows are matched by vocabulary value."""
    jit_compile: bool = True
    """Compile the dense part with XLA."""
    validation_fraction: PositiveFraction | None = None
    """Evaluate during training on this share of the evaluation data only; on all of it unless given."""

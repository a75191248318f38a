"""Rules on `training`, `evaluation` and `export`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from easyrec.config.paths import Path
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import nearest

RANKING_METRICS = ("ndcg", "recall", "precision", "hit_rate", "map", "mrr")
"""What ranked lists are judged by, each at the lengths in `evaluation.k`."""

Findings = Iterator[tuple[Path, str]]


def metrics_to_watch_exist(config: PipelineConfig) -> Findings:
    """Early stopping and checkpoints watch `<task>/<metric>` or `ranking/<metric>`, on evaluation rows that exist."""
    training = config.training
    watched: list[tuple[Path, str | None]] = [
        (("training", "checkpoints", "metric"), training.checkpoints.metric),
    ]
    if training.early_stopping is not None:
        watched.append((("training", "early_stopping", "metric"), training.early_stopping.metric))
    measured = config.data.eval is not None or config.data.split is not None
    if training.early_stopping is not None and not measured:
        yield (
            ("training", "early_stopping"),
            "early stopping watches evaluation rows; give `data.eval` or `data.split`",
        )
    for path, name in watched:
        if name is not None:
            found = list(_watchable(path, name, config))
            yield from found
            if not found and not measured and path[1] == "checkpoints":
                yield path, f"{name!r} is measured on evaluation rows; give `data.eval` or `data.split`"


def _watchable(path: Path, name: str, config: PipelineConfig) -> Findings:
    known = [
        f"{task_name}/{metric}"
        for task_name, task in config.tasks.items()
        if task.type != "retrieval"
        for metric in task.effective_metrics
    ]
    ranked = [f"ranking/{metric}@{length}" for metric in RANKING_METRICS for length in config.evaluation.k]
    scope, slash, _ = name.partition("/")
    if not slash:
        guess = f"{next(iter(config.tasks))}/{name}"
        hint = nearest(guess, [*known, *ranked])
        yield path, f"a metric is called `<task>/<metric>` or `ranking/<metric>`, got {name!r}.{hint}"
    elif scope == "ranking":
        yield from _watchable_ranking(path, name, ranked, config)
    elif scope not in config.tasks:
        yield path, f"no task {scope!r} in {name!r}.{nearest(scope, [*config.tasks, 'ranking'])}"
    elif config.tasks[scope].type == "retrieval":
        yield (
            path,
            f"a retrieval task is judged by ranked lists; watch {ranked[0]!r} or its like instead of {name!r}",
        )
    elif name not in known:
        hint = nearest(name, known)
        yield path, f"the task {scope!r} does not report {name!r}; list it in `tasks.{scope}.metrics`.{hint}"


def _watchable_ranking(path: Path, name: str, ranked: list[str], config: PipelineConfig) -> Findings:
    for key in ("user", "item"):
        if getattr(config.data.keys, key) is None:
            yield path, f"{name!r} is of ranked lists, which need `data.keys.{key}`"
    if config.evaluation.ranking is False:
        yield path, f"{name!r} is of ranked lists, which `evaluation.ranking: false` turns off"
    if name not in ranked:
        yield (
            path,
            f"ranked lists are not judged by {name!r}; their lengths are in `evaluation.k`.{nearest(name, ranked)}",
        )


def list_lengths_are_positive(config: PipelineConfig) -> Findings:
    """`evaluation.k` holds one or more different lengths of at least 1."""
    lengths = config.evaluation.k
    if not lengths:
        yield ("evaluation", "k"), "give one or more lengths of ranked lists, such as [5, 10]"
    for index, length in enumerate(lengths):
        if length < 1:
            yield (
                ("evaluation", "k", index),
                f"a list of {length} items cannot be judged; lengths are 1 or more",
            )
    for length, count in Counter(lengths).items():
        if count > 1:
            yield ("evaluation", "k"), f"the length {length} is given {count} times"


def exported_checkpoint_is_named(config: PipelineConfig) -> Findings:
    """`export.checkpoint` is `best`, `last` or the number of a step."""
    name = config.export.checkpoint
    if name not in ("best", "last") and not name.isdecimal():
        yield ("export", "checkpoint"), f"`best`, `last` or the number of a step, got {name!r}"


def batches_can_be_divided(config: PipelineConfig) -> Findings:
    """`training.accumulate` divides the batch."""
    training = config.training
    if training.batch_size % training.accumulate:
        yield (
            ("training", "accumulate"),
            f"a batch of {training.batch_size} rows cannot be computed in {training.accumulate} equal parts",
        )


def streams_are_asynchronous(config: PipelineConfig) -> Findings:
    """Batches in several streams miss each other's updates, `staleness: 1` promises that none does."""
    cluster = config.training.cluster
    if cluster.concurrent_batches > 1 and cluster.staleness == 1:
        yield (
            ("training", "cluster", "streams"),
            "batches trained at the same time miss each other's updates, which `staleness: 1` rules out; leave one "
            "of the two out",
        )


TRAINING_RULES = (
    batches_can_be_divided,
    metrics_to_watch_exist,
    list_lengths_are_positive,
    exported_checkpoint_is_named,
    streams_are_asynchronous,
)

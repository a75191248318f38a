"""Looks up metrics and baselines by name. A module of its own, because `evaluation` takes time to import."""

from __future__ import annotations

from collections.abc import Iterator

from easyrec.config.paths import Path
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import Problem, nearest
from evaluation.baselines import BASELINES
from evaluation.errors import MetricError
from evaluation.metrics.registry import metrics_of, parse_metric

KINDS = {
    "binary": ("binary", "grouped"),
    "regression": ("regression",),
    "multiclass": ("multiclass",),
    "retrieval": ("ranking",),
}
"""Kinds of metrics that fit each type of task; a type that is not here takes all."""


def check_names(config: PipelineConfig) -> list[Problem]:
    """Metrics and baselines that do not exist, or do not fit their task."""
    findings = (*_metrics(config), *_baselines(config))
    return [config.locations.problem(path, message) for path, message in findings]


def _baselines(config: PipelineConfig) -> Iterator[tuple[Path, str]]:
    for index, name in enumerate(config.evaluation.baselines):
        if name not in BASELINES:
            yield ("evaluation", "baselines", index), f"unknown baseline {name!r}.{nearest(name, BASELINES)}"


def _metrics(config: PipelineConfig) -> Iterator[tuple[Path, str]]:
    for name, task in config.tasks.items():
        for index, text in enumerate(task.metrics or ()):
            path: Path = ("tasks", name, "metrics", index)
            try:
                metric = parse_metric(text).metric
            except MetricError as error:
                yield path, str(error)
                continue
            kinds = KINDS.get(task.type)
            if kinds is not None and not set(kinds) & set(metric.kinds):
                fitting = [known.name for kind in kinds for known in metrics_of(kind)]  # type: ignore[arg-type]
                yield (
                    path,
                    f"{text!r} is for {' and '.join(metric.kinds)}, not for a {task.type} task, which takes "
                    f"{', '.join(dict.fromkeys(fitting))}",
                )
            if "grouped" in metric.kinds and config.data.keys.user is None:
                yield path, f"{text!r} is computed for each user; name the column in `data.keys.user`"

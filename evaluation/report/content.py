"""What a report holds, checked and in one place, before it is laid out as JSON, Markdown or HTML."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from evaluation.attribution import Attribution
from evaluation.baselines import BASELINES
from evaluation.errors import DataError, EvaluationError, did_you_mean
from evaluation.importance import ImportanceResult
from evaluation.leakage import LeakageReport
from evaluation.metrics.registry import get_metric
from evaluation.ranking_result import RankingResult
from evaluation.render import decimals_for, interval_text, number, percent
from evaluation.results import EvaluationResult, TaskResult
from evaluation.slice_result import SliceResult
from evaluation.uncertainty import Estimate

SCHEMA = "easyrec.report/1"
EXPLANATIONS_START = "<!-- explanations -->"
EXPLANATIONS_END = "<!-- end of explanations -->"
"""Between these marks HTML and Markdown hold what predictions come from, so that it can be added later."""


@dataclass(frozen=True)
class RecommendedItem:
    """One place of an example list.

    Attributes:
        title: What a person calls the item.
        score: The model's score, if worth showing.
        relevant: Whether the user did like it later.
        note: A few more words, e.g. the genres.
    """

    title: str
    score: float | None = None
    relevant: bool = False
    note: str = ""


@dataclass(frozen=True)
class Example:
    """What one user liked and what is recommended to them.

    Attributes:
        user: How the user is called.
        history: Titles of what the user liked, latest first.
        recommended: Titles or items from the best.
    """

    user: str
    history: Sequence[str]
    recommended: Sequence[str | RecommendedItem]

    @property
    def items(self) -> list[RecommendedItem]:
        """The recommendations, all as items."""
        return [RecommendedItem(one) if isinstance(one, str) else one for one in self.recommended]


@dataclass(frozen=True)
class Report:
    """The content of a report; every part but the title may be empty.

    Attributes:
        title: Heading.
        model: The model of `ranking` that the report is about.
        evaluation: Pointwise metrics.
        ranking: Ranking metrics of the model and baselines.
        summary: Key facts.
        training_log: Entries of the training log.
        coverage: One mapping per feature.
        examples: Example lists.
        config_text: The configuration as text.
        versions: Versions of libraries.
        command: The command that reproduces the run.
        slices: Metrics by slice.
        leakage: Signs of leakage.
        importance: Permutation importance by task.
        attributions: Predictions taken apart.
        data: Facts of each part of the data, e.g. ``{"training": {"rows": 100}, "evaluation": {"rows": 20}}``.
        notes: What a reader should know: what was left out, and why something is missing.
    """

    title: str
    model: str | None = None
    evaluation: EvaluationResult | None = None
    ranking: RankingResult | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    training_log: Sequence[Mapping[str, Any]] = ()
    coverage: Sequence[Mapping[str, Any]] = ()
    examples: Sequence[Example] = ()
    config_text: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    slices: Sequence[SliceResult] = ()
    leakage: LeakageReport | None = None
    importance: Sequence[ImportanceResult] = ()
    attributions: Sequence[Attribution] = ()
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def verdicts(self) -> list[str]:
        """What the numbers say, in plain words, one sentence each."""
        sentences = []
        if self.leakage and not self.leakage.is_clean:
            sentences.append(f"Signs of leakage: {self.leakage.findings[0].message}")
        if self.ranking and self.model in self.ranking.differences:
            sentences.append(" ".join(self.ranking.verdicts(str(self.model))))
        if self.evaluation:
            sentences += [
                verdict for task in self.evaluation.tasks.values() if (verdict := task_verdict(task))
            ]
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form.

        Returns:
            ``{"schema": "easyrec.report/1", "title", "verdicts": [..], "model", "summary": {..}, "evaluation": see
            `EvaluationResult.to_dict` or None, "ranking": see `RankingResult.to_dict` or None, "training_log": [..],
            "coverage": [..], "examples": [{"user", "history", "recommended": [{"title", "score", "relevant",
            "note"}]}], "config", "versions": {..}, "command", "slices": [..], "leakage": {..} or None, "importance":
            [..], "attributions": [..], "data": {part: {..}}, "notes": [..]}``; ``report.schema.json``
            beside this module has it all.
        """
        return {
            "schema": SCHEMA,
            "title": self.title,
            "verdicts": self.verdicts(),
            "model": self.model,
            "summary": jsonable(self.summary),
            "evaluation": self.evaluation.to_dict() if self.evaluation else None,
            "ranking": self.ranking.to_dict() if self.ranking else None,
            "training_log": jsonable(self.training_log),
            "coverage": jsonable(self.coverage),
            "examples": [
                {
                    "user": one.user,
                    "history": list(one.history),
                    "recommended": [jsonable(asdict(item)) for item in one.items],
                }
                for one in self.examples
            ],
            "config": self.config_text,
            "versions": dict(self.versions),
            "command": self.command,
            "slices": [one.to_dict() for one in self.slices],
            "leakage": self.leakage.to_dict() if self.leakage else None,
            "importance": [jsonable(one.to_dict()) for one in self.importance],
            "attributions": [jsonable(one.to_dict()) for one in self.attributions],
            "data": jsonable(self.data),
            "notes": list(self.notes),
        }


def task_verdict(task: TaskResult) -> str:
    """One sentence on a task, or nothing where no main metric is defined."""
    main = {"binary": "auc", "regression": "rmse", "multiclass": "accuracy"}[task.type]
    estimate = task.metrics.get(main)
    if estimate is None or not math.isfinite(estimate.value):
        return ""
    decimals = min(decimals_for([estimate]), 3)
    span = (
        f" ({percent(estimate.level)} interval {interval_text(estimate, decimals)})"
        if estimate.has_interval
        else ""
    )
    value = number(estimate.value, decimals)
    if task.type == "regression":
        share = _explained_words(task.metrics.get("r2"))
        return f"{task.name}: RMSE {value}{span}{share}.{_against_baseline(task, main)}"
    if task.type == "multiclass":
        right = f"the most likely class is right for {percent(estimate.value, 1)} of rows{span}"
        return f"{task.name}: {right}.{_against_baseline(task, main)}"
    chance = (
        " That cannot be told from chance."
        if estimate.has_interval and estimate.low <= 0.5 <= estimate.high
        else ""
    )
    return (
        f"{task.name}: a positive row is scored above a negative one {percent(estimate.value)} of the time, "
        f"AUC {value}{span}.{chance}{_against_baseline(task, main)}{_calibration_words(task)}"
    )


def _explained_words(r2: Estimate | None) -> str:
    if r2 is None or not math.isfinite(r2.value):
        return ""
    if r2.value < 0:
        return "; always predicting the mean label would be closer"
    return f"; {percent(r2.value)} of the variance is explained"


def _against_baseline(task: TaskResult, main: str) -> str:
    """Whether the strongest baseline of the task is beaten, with the numbers."""
    if not task.baselines:
        return ""
    name, baseline = list(task.baselines.items())[-1]
    gap, value = baseline.differences.get(main), baseline.metrics[main].value
    if gap is None or not math.isfinite(value):
        return ""
    shown = number(value, min(decimals_for([task.metrics[main]]), 3))
    is_better = (gap.difference.value > 0) == get_metric(main).higher_is_better
    if gap.is_significant:
        return f" It {'beats' if is_better else 'is worse than'} the baseline {name} ({shown})."
    return f" That is no clear difference from the baseline {name} ({shown})."


def _calibration_words(task: TaskResult) -> str:
    if "log_loss" in task.left_out or not task.label_mean > 0:
        return ""
    return f" Scores average {number(task.score_mean, 3)} where {number(task.label_mean, 3)} was observed."


def main_model(ranking: RankingResult | None, model: str | None) -> str | None:
    """The model a report is about.

    Args:
        ranking: The ranking result.
        model: What the caller asked for.

    Returns:
        `model`, or the first one that is neither the reference nor named like a baseline, or the best but the
        reference.

    Raises:
        EvaluationError: `model` is not in the result.
    """
    if ranking is None:
        return None
    if model is not None:
        if model not in ranking.models:
            raise EvaluationError(f"Unknown model {model!r}; {did_you_mean(model, ranking.models)}")
        return model
    own = [name for name in ranking.models if name != ranking.reference and name not in BASELINES]
    others = [name for name in ranking.by_primary() if name != ranking.reference]
    return next(iter([*own, *others]), None)


def examples_of(given: Iterable[Example | Mapping[str, Any]] | None) -> list[Example]:
    """Read examples given as objects or as mappings with the same keys.

    Raises:
        DataError: An unknown or missing key.
    """
    return [one if isinstance(one, Example) else _example(one) for one in given or ()]


def _example(given: Mapping[str, Any]) -> Example:
    values = _known_keys(given, Example, "An example")
    items = [
        one
        if isinstance(one, str | RecommendedItem)
        else RecommendedItem(**_known_keys(one, RecommendedItem, "An item"))
        for one in values["recommended"]
    ]
    return Example(str(values["user"]), [str(title) for title in values["history"]], items)


def _known_keys(
    given: Mapping[str, Any], kind: type[Example] | type[RecommendedItem], what: str
) -> dict[str, Any]:
    known = [one.name for one in fields(kind)]
    for key in given:
        if key not in known:
            raise DataError(f"{what} of the report has an unknown key {key!r}; {did_you_mean(key, known)}")
    needed = known if kind is Example else known[:1]
    missing = [key for key in needed if key not in given]
    if missing:
        raise DataError(
            f"{what} of the report lacks {', '.join(missing)}; it has {', '.join(given) or 'no keys'}."
        )
    return dict(given)


def coverage_rows(given: Any) -> list[dict[str, Any]]:
    """Read a coverage table given as a DataFrame, a list of mappings, or mappings by feature.

    Raises:
        DataError: Something else.
    """
    if given is None:
        return []
    if isinstance(given, pd.DataFrame):
        return [{str(key): value for key, value in row.items()} for row in given.to_dict("records")]
    if isinstance(given, Mapping) and all(isinstance(value, Mapping) for value in given.values()):
        return [{"feature": name, **value} for name, value in given.items()]
    if isinstance(given, Sequence) and all(isinstance(value, Mapping) for value in given):
        return [dict(value) for value in given]
    raise DataError(f"coverage must be a DataFrame or one mapping per feature, got {type(given).__name__}.")


def jsonable(value: Any) -> Any:
    """Plain lists, dicts, numbers and texts; a number that is not finite becomes None.

    Raises:
        DataError: A value that has no such form.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, Iterable):
        return [jsonable(one) for one in value]
    raise DataError(f"A report cannot hold {value!r} of type {type(value).__name__}; give text or numbers.")

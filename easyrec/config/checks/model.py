"""Rules on `model` and `tasks`: whether the architecture fits what is predicted and the features it is given."""

from __future__ import annotations

from collections.abc import Iterator

from easyrec.config.checks.features import find_feature
from easyrec.config.features import FeatureConfig, SequenceFeature
from easyrec.config.models import MODELS
from easyrec.config.paths import Path
from easyrec.config.patterns import covers, is_pattern
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.tasks import prediction_columns
from easyrec.errors import nearest

Findings = Iterator[tuple[Path, str]]

RESERVED_TASKS = frozenset({"ranking", "loss", "total"})
"""Names that metrics and losses use themselves."""


def selected_features(config: PipelineConfig) -> dict[str, FeatureConfig] | None:
    """The features the model uses; None when that is not known before patterns are written out, or is wrong."""
    if config.model.features is None:
        return dict(config.features)
    selected: dict[str, FeatureConfig] = {}
    for name in config.model.features:
        if (feature := find_feature(config, name)) is not None:
            selected[name] = feature
            continue
        if not is_pattern(name) or any(is_pattern(feature_name) for feature_name in config.features):
            return None
        selected.update({found: feature for found, feature in config.features.items() if covers(name, found)})
    return selected


def selections_name_features(config: PipelineConfig) -> Findings:
    """`features` and `wide_features` name features that exist."""
    for option in ("features", "wide_features"):
        for index, name in enumerate(getattr(config.model, option, None) or ()):
            # What a pattern matches is known once patterns among the features are written out.
            if not is_pattern(name) and find_feature(config, name) is None:
                yield ("model", option, index), f"no feature {name!r}.{nearest(name, config.features)}"


def model_fits_the_tasks(config: PipelineConfig) -> Findings:
    """Each task is of a type that the model can be trained on, and there are not too many."""
    model = config.model
    for name, task in config.tasks.items():
        if model.fits and task.type not in model.fits:
            others = [part.name for part in MODELS if not part.config.fits or task.type in part.config.fits]
            yield (
                ("tasks", name, "type"),
                f"the model {model.type} is for {' or '.join(model.fits)} tasks, not {task.type}; "
                f"models for {task.type}: {', '.join(others) or 'none'}",
            )
    if model.max_tasks is not None and len(config.tasks) > model.max_tasks:
        yield (
            ("tasks",),
            f"the model {model.type} is trained on {model.max_tasks} task at a time, got {len(config.tasks)}: "
            f"{', '.join(config.tasks)}",
        )


def task_names_are_free(config: PipelineConfig) -> Findings:
    """Metrics are called `<task>/<metric>`, so a task has no slash and none of the names used beside tasks."""
    for name in config.tasks:
        if "/" in name or not name.strip():
            yield (
                ("tasks", name),
                "a task's name has no slash and is not empty; metrics are called `<task>/<metric>`",
            )
        elif name in RESERVED_TASKS:
            yield ("tasks", name), f"the name {name!r} is used in reports already; choose another"


def retrieval_has_keys(config: PipelineConfig) -> Findings:
    """Finding items for users needs to know both."""
    for name, task in config.tasks.items():
        if task.type == "retrieval":
            for key in ("user", "item"):
                if getattr(config.data.keys, key) is None:
                    yield (
                        ("tasks", name),
                        f"a retrieval task finds items for users; name the column in `data.keys.{key}`",
                    )


def retrieval_takes_no_negatives(config: PipelineConfig) -> Findings:
    """In-batch softmax has its negatives from the batch, and rows with label 0 are not used."""
    if config.data.negatives is not None and all(task.type == "retrieval" for task in config.tasks.values()):
        yield (
            ("data", "negatives"),
            "a retrieval task takes its negatives from the batch and leaves out rows with label 0; "
            "drop `negatives` (or set it to null)",
        )


def model_has_its_features(config: PipelineConfig) -> Findings:
    """What an architecture asks of its features."""
    features = selected_features(config)
    if features is None:
        return
    widths = {name: _width(feature, config) for name, feature in features.items() if feature.embedded}
    for message in config.model.misfit(features, widths):
        yield ("model",), message


def _width(feature: FeatureConfig, config: PipelineConfig) -> int:
    if isinstance(feature, SequenceFeature) and feature.of is not None:
        feature = find_feature(config, feature.of) or feature
    return getattr(feature, "embedding_dim", None) or config.embedding.dim


def predictions_have_names_of_their_own(config: PipelineConfig) -> Findings:
    """No two columns of a table of predictions have one name."""
    owner: dict[str, str] = {}
    for name, task in config.tasks.items():
        for column in prediction_columns(name, task):
            if owner.setdefault(column, name) != name:
                yield (
                    ("tasks", name),
                    f"its predictions and those of {owner[column]!r} would both be called {column!r}; rename a task",
                )


MODEL_RULES = (
    selections_name_features,
    model_fits_the_tasks,
    task_names_are_free,
    predictions_have_names_of_their_own,
    retrieval_has_keys,
    retrieval_takes_no_negatives,
    model_has_its_features,
)

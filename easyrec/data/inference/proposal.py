"""A commented configuration for a data set: what `easyrec init` writes."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from easyrec.config.pipeline import PipelineConfig
from easyrec.data.inference.findings import Choice, Findings
from easyrec.data.inference.profile import TableProfile

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENT_AT = 60
_STEPS = 1500
"""Steps that training on little data takes at most, about."""


def propose(
    found: Findings,
    table: TableProfile,
    items: TableProfile | None = None,
    users: TableProfile | None = None,
    name: str = "pipeline",
) -> str:
    """The configuration as text, each line with its reason; it loads as it is.

    Args:
        found: What the columns mean.
        table: The interactions.
        items: The item table.
        users: The user table.
        name: Name of the pipeline.
    """
    rows = "more than 500,000" if table.rows is None else f"{table.rows:,}"
    lines = [
        f"# Proposed by `easyrec init` from {rows} rows and {len(table.columns)} columns of {table.source.path[0]}.",
        "# Everything not written here has a default; `easyrec validate --show` prints them all.",
        f"name: {_scalar(name)}",
        "data:",
        *_source("train", table, "  "),
    ]
    if found.keys:
        lines.append("  keys:")
        lines += [
            _line(f"    {word}: {_scalar(choice.value)}", choice.why) for word, choice in found.keys.items()
        ]
    if items is not None or users is not None:
        lines.append("  tables:")
        for side, profile in (("user", users), ("item", items)):
            if profile is not None:
                lines += _source(side, profile, "    ")
    lines.append(_split(found))
    negatives = _negatives(found)
    if negatives is not None:
        lines.append(negatives)
    lines.append("features:")
    for column, choice in found.features.items():
        lines.append(_line(f"  {_feature(column, choice.value)}", choice.why))
    if found.left_out:
        lines.append("  # Left out:")
        lines += [f"  #   {column}: {choice.why}" for column, choice in found.left_out.items()]
    lines += [*_model(found), "tasks:", _task(found)]
    if found.others:
        lines.append(f"  # These could be tasks too: {', '.join(found.others[:5])}")
    lines += _training(table, found)
    return "\n".join(lines) + "\n"


def check(text: str) -> PipelineConfig:
    """Loads a proposed configuration; raises what a user's own file would raise."""
    return PipelineConfig.model_validate(yaml.safe_load(text))


def _source(word: str, profile: TableProfile, indent: str) -> list[str]:
    source = profile.source
    if not source.options and not source.columns and source.format is None:
        return [f"{indent}{word}: {_scalar(source.path[0])}"]
    lines = [f"{indent}{word}:", f"{indent}  path: {_scalar(source.path[0])}"]
    if source.options:
        lines.append(f"{indent}  options:")
        for name, value in source.options.items():
            lines.append(_line(f"{indent}    {name}: {_scalar(value)}", profile.notes.get(name, "")))
    if source.columns:
        casts = ", ".join(f"{_scalar(name)}: {kind}" for name, kind in source.columns.items())
        lines.append(_line(f"{indent}  columns: {{{casts}}}", "text that holds times"))
    return lines


def _split(found: Findings) -> str:
    if "time" not in found.keys:
        return _line(
            "  split: {type: random, fraction: 0.1}", "rows held out to measure on; no column is a time"
        )
    if "user" in found.keys:
        return _line(
            "  split: {type: user_latest, fraction: 0.1}",
            "each user's latest rows are held out to measure on",
        )
    return _line("  split: {type: time, fraction: 0.1}", "the latest rows are held out to measure on")


def _negatives(found: Findings) -> str | None:
    if not _ranks_rated(found):
        return None
    where = found.task.value["label"] if found.task else None
    return _line(
        f"  negatives: {{per_row: 4, where: {_flow(where)}, sampling: popularity, power: 0.5}}",
        "only rated items are in the data; these teach what is not chosen",
    )


def _ranks_rated(found: Findings) -> bool:
    """Whether the model ranks items by what users say of those they chose, so that it must learn of the others too."""
    return (
        found.task is not None
        and found.task.value["type"] == "binary"
        and ">=" in found.task.value.get("label", "")
        and {"user", "item"} <= found.keys.keys()
    )


def _feature(column: str, options: dict[str, Any]) -> str:
    """One feature; a column whose name would be taken for a pattern gets a plain name."""
    if any(sign in column for sign in "*?{}"):
        plain = re.sub(r"[*?{}]", "_", column)
        return f"{_scalar(plain)}: {_flow({**options, 'column': column})}"
    return f"{_scalar(column)}: {_flow(options)}"


def _model(found: Findings) -> list[str]:
    if found.task is not None and found.task.value["type"] == "retrieval":
        return [_line("model: {type: two_tower}", "finds items for users among many")]
    if not any(_embeds(choice.value) for choice in found.features.values()):
        return [
            _line(
                "model: {type: wide_and_deep, hidden_units: [64, 32]}",
                "a linear model and a network: strong on numbers alone",
            )
        ]
    if _ranks_rated(found):
        return [
            _line(
                "model: {type: deepfm, hidden_units: [128, 64], dropout: 0.2}",
                "a strong default; `easyrec list models` shows others",
            ),
            _line("embedding: {dim: 32}", "numbers that describe an item; taste takes more than clicks do"),
        ]
    return [
        _line(
            "model: {type: deepfm, hidden_units: [128, 64]}",
            "a strong default; `easyrec list models` shows others",
        )
    ]


def _embeds(options: dict[str, Any]) -> bool:
    """Whether a feature has embeddings."""
    return options["type"] != "number" or "buckets" in options


def _task(found: Findings) -> str:
    choice = found.task or Choice({"type": "binary"}, "")
    return _line(f"  {_scalar(found.task_name)}: {_flow(choice.value)}", choice.why)


def _training(table: TableProfile, found: Findings) -> list[str]:
    rows = table.rows if table.rows is not None else 1_000_000
    if rows < 20_000:
        # What matters is the number of steps: with few rows, small batches and many passes.
        batch = min(max(1 << (max(rows, 1) // 40).bit_length() - 1, 16), 256) if rows >= 80 else 16
        if found.task is not None and found.task.value["type"] == "retrieval":
            batch = max(batch, 256)  # the rest of the batch are the negatives
        epochs = min(max(round(_STEPS * batch / max(rows, 1)), 10), 50)
        return [
            "training:",
            _line(f"  batch_size: {batch}", "examples in a step; not many, as there are few rows"),
            _line(f"  epochs: {epochs}", "at most so many passes over the data; the best one is kept"),
            _line("  early_stopping: {patience: 5}", "passes without a better result before training ends"),
        ]
    batch = 1024 if rows < 200_000 else 4096
    epochs = 5 if rows < 200_000 else 2 if rows < 2_000_000 else 1
    lines = [
        "training:",
        _line(f"  batch_size: {batch}", "examples in a step"),
        _line(f"  epochs: {epochs}", "passes over the data; the best one is kept"),
    ]
    if _ranks_rated(found):
        lines += [
            _line(
                "  optimizer: {embedding: {learning_rate: 0.05}}", "faster than usual, as most ids are rare"
            ),
            _line("  checkpoints: {metric: ranking/ndcg@10}", "the best one is the one whose lists are best"),
        ]
    return lines


def _line(text: str, why: str) -> str:
    if not why:
        return text
    # A line break in a reason (a value with one in it) would end the comment.
    reason = " ".join(why.split())
    return f"{text:<{_COMMENT_AT}} # {reason}"


def _flow(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """One value, quoted wherever YAML would read something else, or `${` would be substituted."""
    if not isinstance(value, str):
        return json.dumps(value)
    text = value.replace("${", "$${")
    plain = re.fullmatch(r"[A-Za-z0-9_./ >=<-]+", text) is not None and text == text.strip()
    if plain and not text.startswith(("-", ">", "=", "<")) and yaml.safe_load(text) == value:
        return text
    return json.dumps(text, ensure_ascii=False)

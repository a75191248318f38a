"""Rules on `data`: which options need which keys, and which exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pydantic import ValidationError

from easyrec.config.data import READERS, SourceConfig
from easyrec.config.expressions import ExpressionError, parse
from easyrec.config.features import SequenceFeature
from easyrec.config.messages import describe
from easyrec.config.paths import Path
from easyrec.config.pipeline import PipelineConfig
from easyrec.errors import nearest

Findings = Iterator[tuple[Path, str]]

_OPERATORS = frozenset("<>=!'\"`()[]&|")
_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def expressions_can_be_read(config: PipelineConfig) -> Findings:
    """Filters parse; so do labels and weights, unless they may be the name of a column."""
    data = config.data
    texts: list[tuple[Path, str | None, bool]] = [
        (("data", "where"), data.where, False),
        (("data", "weight"), data.weight, True),
        (("data", "negatives", "where"), data.negatives.where if data.negatives else None, False),
        (("evaluation", "relevant"), config.evaluation.relevant, False),
        *((("tasks", name, "label"), task.label, True) for name, task in config.tasks.items()),
    ]
    for name, feature in config.features.items():
        if isinstance(feature, SequenceFeature) and feature.history is not None:
            texts.append((("features", name, "history", "where"), feature.history.where, False))
    for path, text, may_be_column in texts:
        if text is None or (may_be_column and not _OPERATORS & set(text)):
            continue
        try:
            parse(text)
        except ExpressionError as error:
            yield path, str(error)


def eval_excludes_split(config: PipelineConfig) -> Findings:
    """Evaluation rows come from one place."""
    if config.data.eval is not None and config.data.split is not None:
        yield (
            ("data", "split"),
            "`data.eval` is given too; drop one of them (to undo one that is included, set it to null)",
        )


def split_has_its_keys(config: PipelineConfig) -> Findings:
    """A split by user needs the user key, one by time the time key."""
    split = config.data.split
    if split is None:
        return
    needed = {"time": ("time",), "user": ("user",), "user_latest": ("user", "time")}.get(split.type, ())
    for key in needed:
        if getattr(config.data.keys, key) is None:
            yield ("data", "split", "type"), f"a split by `{split.type}` needs `data.keys.{key}`"


def tables_have_their_keys(config: PipelineConfig) -> Findings:
    """A table is joined on its key."""
    for table in ("user", "item"):
        if getattr(config.data.tables, table) is not None and getattr(config.data.keys, table) is None:
            yield (
                ("data", "tables", table),
                f"the {table} table is joined on `data.keys.{table}`, which is not given",
            )


def negatives_have_an_item_key(config: PipelineConfig) -> Findings:
    """Sampled negatives replace the item of a row."""
    if config.data.negatives is not None and config.data.keys.item is None:
        yield (
            ("data", "negatives"),
            "sampled negatives replace the item of a row; name its column in `data.keys.item`",
        )


def histories_have_keys(config: PipelineConfig) -> Findings:
    """A history is what the same user did before."""
    for name, feature in config.features.items():
        if isinstance(feature, SequenceFeature) and feature.history is not None:
            for key in ("user", "time"):
                if getattr(config.data.keys, key) is None:
                    yield (
                        ("features", name, "history"),
                        f"a history lists what the same user did before; name the column in `data.keys.{key}`",
                    )


def ranking_has_its_keys(config: PipelineConfig) -> Findings:
    """Ranked lists are of items, one list a user."""
    if config.evaluation.ranking:
        for key in ("user", "item"):
            if getattr(config.data.keys, key) is None:
                yield ("evaluation", "ranking"), f"ranking items for users needs `data.keys.{key}`"


def file_formats_are_known(config: PipelineConfig) -> Findings:
    """Formats exist, and their options are theirs."""
    data = config.data
    sources: dict[Path, SourceConfig | None] = {
        ("data", "train"): data.train,
        ("data", "eval"): data.eval,
        ("data", "tables", "user"): data.tables.user,
        ("data", "tables", "item"): data.tables.item,
    }
    for path, source in sources.items():
        if source is not None:
            yield from _format(path, source)


def _format(path: Path, source: SourceConfig) -> Findings:
    if source.format is not None and source.format not in READERS:
        yield (
            (*path, "format"),
            f"unknown file format {source.format!r}.{nearest(source.format, READERS.names())}",
        )
        return
    name = source.format or _format_of(source.path[0])
    if name is None:
        return
    try:
        READERS[name].config.model_validate(source.options)
    except ValidationError as error:
        for details in error.errors():
            yield (*path, "options", *details["loc"]), describe(details, READERS[name].config.model_fields)


def _format_of(path: str) -> str | None:
    """The format that the suffix says, if it says one."""
    name = PurePosixPath(path)
    suffix = name.with_suffix("").suffix if name.suffix in (".gz", ".bz2", ".zst", ".xz") else name.suffix
    return _SUFFIXES.get(suffix)


DATA_RULES = (
    expressions_can_be_read,
    eval_excludes_split,
    split_has_its_keys,
    tables_have_their_keys,
    negatives_have_an_item_key,
    histories_have_keys,
    ranking_has_its_keys,
    file_formats_are_known,
)

"""`defaults:`, options that many entries share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from easyrec.config.features import FEATURES, FeatureConfig
from easyrec.config.paths import Path, format_path
from easyrec.config.tasks import TASKS
from easyrec.config.yaml_reader import Document
from easyrec.errors import Problem, nearest
from easyrec.registry import Registry

_FAMILIES: Mapping[str, Registry[Any]] = {"features": FEATURES, "tasks": TASKS}


def apply_defaults(document: Document) -> Document:
    """Takes the block `defaults` out of a document and fills its options into entries that lack them.

        defaults:
          features: {embedding_dim: 8, side: item}
          tasks: {metrics: [auc, gauc]}

    An option goes to each entry whose type has it, unless the entry gives it itself (as a whole: mappings are not
    merged) or takes it from elsewhere (a sequence has the embedding of the feature it is `of`). An option that no
    type has is refused.

    Args:
        document: Merged and overridden; it is not changed.

    Returns:
        The document without `defaults`; problems are added to its problems.
    """
    if not isinstance(document.value, dict) or "defaults" not in document.value:
        return document
    value = {key: item for key, item in document.value.items() if key != "defaults"}
    result = Document(value, dict(document.places), list(document.problems))
    defaults = document.value["defaults"]
    if defaults is None:
        return result
    if not isinstance(defaults, dict):
        result.problems.append(_problem(result, ("defaults",), f"a mapping is expected, got {defaults!r}"))
        return result
    for family, options in defaults.items():
        _apply(result, family, options)
    return result


def _problem(document: Document, path: Path, message: str) -> Problem:
    place = document.places.get(path)
    return Problem(format_path(path), message, place.file if place else None, place.line if place else None)


def _apply(document: Document, family: str, options: Any) -> None:
    path: Path = ("defaults", family)
    if family not in _FAMILIES:
        message = (
            f"there are defaults for {' and '.join(_FAMILIES)}, not {family!r}.{nearest(family, _FAMILIES)}"
        )
        document.problems.append(_problem(document, path, message))
        return
    if not isinstance(options, dict):
        document.problems.append(
            _problem(document, path, f"a mapping of options is expected, got {options!r}")
        )
        return
    registry = _FAMILIES[family]
    known = {name for part in registry for name in part.config.model_fields} - {"type"}
    for option in options:
        if option not in known:
            message = f"no {registry.kind} has the option {option!r}.{nearest(option, known)}"
            document.problems.append(_problem(document, (*path, option), message))
    entries = document.value.get(family)
    if isinstance(entries, dict):
        filled = {
            name: _filled(document, (family, name), entry, options, registry)
            for name, entry in entries.items()
        }
        document.value[family] = filled


def _filled(
    document: Document, path: Path, entry: Any, options: dict[str, Any], registry: Registry[Any]
) -> Any:
    written = {"type": entry} if isinstance(entry, str) else entry
    if isinstance(written, BaseModel) or not isinstance(written, dict):
        return entry
    kind = written.get("type")
    if not isinstance(kind, str) or kind not in registry:
        return entry
    config = registry[kind].config
    settled = config.settled(written) if issubclass(config, FeatureConfig) else frozenset()
    added = {
        option: value
        for option, value in options.items()
        if option != "type"
        and option in config.model_fields
        and option not in written
        and option not in settled
    }
    for option in added:
        source = ("defaults", path[0], option)
        moved = {
            (*path, *old[2:]): place for old, place in document.places.items() if old[: len(source)] == source
        }
        document.places.update(moved)
    return {**written, **added} if added else entry

"""Settings of the service: from a YAML file, from the environment, and from the command line, the latter winning.

    models: [runs/films-deepfm, runs/films-towers]     # the first one ranks
    data: /var/lib/easyrec                             # event log, and the store unless it is Redis
    store: redis://localhost:6379/0
    scenes:
      home:
        sources: {towers: {type: two_tower, n: 200}, popular: {type: popularity}}
        filters: {seen: {type: seen}}

`EASYREC_STORE=...` sets `store`, `EASYREC_EVENTS__SYNC=false` sets `events.sync`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from easyrec.config.base import StrictModel
from easyrec.config.documents import read_files
from easyrec.config.locations import Location, Locations, in_order
from easyrec.config.messages import to_problems
from easyrec.config.yaml_reader import Document, read_yaml
from easyrec.errors import ConfigError, Problem, nearest
from easyrec.registry import load_plugins
from serving.funnel.scene import SceneConfig
from serving.operations.settings import OperationSettings
from serving.security.settings import SecuritySettings

PREFIX = "EASYREC_"
MEMORY, SQLITE = "memory", "sqlite"
EXPOSURES = "exposures"
"""Where the exposure log lies, in the data folder."""
SceneName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class EventSettings(StrictModel):
    """How events are kept."""

    sync: bool = True
    """Force each batch of events to disk before they are acknowledged."""
    segment_mib: int = Field(64, ge=1)
    """A segment of the log that is larger is closed."""
    compact: bool = True
    """Turn closed segments into Parquet, hour by hour, in a process of its own."""
    compact_minutes: float = Field(10.0, gt=0)
    """How often to look for segments to compact."""
    late_minutes: float = Field(60.0, ge=0)
    """How long after its hour an impression still waits for events that answer it."""
    impressions: bool = True
    """Write what was recommended to the log."""
    item_features: bool = False
    """Write the columns of the recommended items that the model reads, as they were then, too. Without them, training
    joins the item table as it is later."""
    not_history: tuple[str, ...] = ()
    """Types of events that are no part of histories, such as `dislike`."""
    stream: str | None = None
    """A Redis stream to read events from as well, such as `redis://localhost:6379/0?stream=events`."""
    forward: str | None = None
    """A Redis stream to which every accepted event is passed on."""


class LimitSettings(StrictModel):
    """What one request may ask for."""

    items: int = Field(10_000, ge=1)
    """Most item keys in one list."""
    events: int = Field(1000, ge=1)
    """Most events in one request."""
    n: int = Field(1000, ge=1)
    """Most items returned."""


class Settings(StrictModel):
    """All settings of the service."""

    plugins: tuple[str, ...] = ()
    """Python modules that register further sources, filters or re-rankers."""
    models: tuple[Path, ...] = Field(min_length=1)
    """Folders of runs or bundles; the first one ranks unless a scene says otherwise."""
    runtime: Literal["auto", "tensorflow", "litert"] = "auto"
    """What computes the models."""
    threads: int = Field(1, ge=1)
    """Threads that one call of a model may use."""
    search: Literal["exact", "faiss"] = "exact"
    """How items are found by their vectors: all of them compared, or an approximate index for large catalogues."""
    watch: tuple[Path, ...] = ()
    """Folders in which new bundles are looked for, loaded in the background and made active once they are verified."""
    watch_seconds: float = Field(10.0, gt=0)
    """How often to look."""
    scenes: dict[SceneName, SceneConfig] = Field(default_factory=dict)
    """Scenes by name; the first is the default one. One named `default` is made from the bundles unless given."""
    experiments: Path | None = None
    """File of A/B experiments; read again when it changes."""
    data: Path = Path("serving_data")
    """Folder of the event log and of the SQLite store; made when missing."""
    store: str = Field(SQLITE, pattern=r"^(memory|sqlite|rediss?://.+|unix://.+)$")
    """`sqlite` (one machine), `memory` (nothing outlives the process) or the URL of a Redis server."""
    keep_days: float = Field(90.0, gt=0)
    """How long the store keeps what a person did, in days."""
    events: EventSettings = EventSettings()
    """How events are kept."""
    limits: LimitSettings = LimitSettings()
    """What one request may ask for."""
    security: SecuritySettings = SecuritySettings()
    """Who may call the service, and how much."""
    operations: OperationSettings = OperationSettings()
    """How the service is watched."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on."""
    workers: int = Field(1, ge=1)
    """Processes."""
    concurrency: int = Field(4, ge=1)
    """Recommendations that one process computes at once."""
    queue: int = Field(64, ge=1)
    """Recommendations that may wait for their turn; further ones are turned away with 503."""


def load_settings(
    file: str | os.PathLike[str] | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from a file, the environment and a caller.

    Args:
        file: A YAML file; it may `include` others and hold `${NAME}`.
        given: Settings that win over all others.
        environment: Variables `EASYREC_...`, and those for `${NAME}`.

    Raises:
        ConfigError: Something is wrong; `problems` names all that was found, with file and line.
    """
    document = read_files(file, environment) if file is not None else Document({})
    value, places = dict(document.value), dict(document.places)
    problems = list(document.problems)
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for variable, text in sorted(environment.items()):
        head = variable.split("__")[0]
        if variable.startswith(PREFIX) and head != variable and head not in known:
            message = f"there is no such setting.{nearest(head, known)}"
            problems.append(Problem("", message, f"${variable}"))
        if head in known:
            path = tuple(part.lower() for part in variable.removeprefix(PREFIX).split("__"))
            _set(value, path, read_yaml(text, variable, numbered=False).value)
            places[path] = Location(f"${variable}")
    for name, one in (given or {}).items():
        value[name] = one
        places[name,] = Location("--" + name)
    locations = Locations(places)
    if "sources" in value:
        message = "a scene stands under `scenes:` and its name, such as `scenes: {home: {sources: ...}}`"
        raise ConfigError([locations.problem(("sources",), message)])
    load_plugins(tuple(name for name in _texts(value.get("plugins"))))
    try:
        settings = Settings.model_validate(value)
    except ValidationError as error:
        raise ConfigError(in_order([*problems, *to_problems(error, Settings, value, locations)])) from error
    if problems:
        raise ConfigError(in_order(problems))
    return settings


def _set(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for step in path[:-1]:
        below = target.get(step)
        below = dict(below) if isinstance(below, dict) else {}
        target[step] = below
        target = below
    target[path[-1]] = value


def _texts(value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else value
    return [one for one in values if isinstance(one, str)] if isinstance(values, (list, tuple)) else []

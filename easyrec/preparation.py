"""Fits data and configuration to each other, learns vocabularies and statistics, and builds the network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from easyrec.config.evaluation_names import check_names
from easyrec.config.loader import parse_config
from easyrec.config.pipeline import PipelineConfig
from easyrec.config.resolve import resolve
from easyrec.data.bound import BoundDataset
from easyrec.data.classes import needs_classes, with_classes
from easyrec.data.dataset import Dataset, open_dataset
from easyrec.data.prepared.shards import ShardSet
from easyrec.data.prepared.training import held_out_shards, shards_folder, training_shards
from easyrec.errors import ConfigError, TrainingError
from easyrec.features.encoder import Encoder
from easyrec.models.build import check_network, item_feature, network_of
from easyrec.models.network import Network
from easyrec.run import RunFolder, abandon, changed_data, find_place, open_run, start_run
from easyrec.training.checkpoints import CheckpointStore
from easyrec.training.memory import check_memory
from easyrec.training.optimizers import dense_optimizer
from easyrec.training.warm_start import warm_start

ConfigSource = PipelineConfig | Mapping[str, Any] | str | Path
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A run whose data, features and network fit each other.

    Attributes:
        run: The folder.
        config: The resolved configuration.
        data: The data.
        encoder: The fitted features.
        label_moments: As for `build_network`.
        notes: What a reader should know of how it starts.
    """

    run: RunFolder
    config: PipelineConfig
    data: BoundDataset
    encoder: Encoder
    label_moments: Mapping[str, tuple[float, float]] | None = None
    notes: list[str] = field(default_factory=list)

    @cached_property
    def network(self) -> Network:
        """The network, untrained, with whole tables; made when it is first asked for.

        Raises:
            TrainingError: Its tables cannot fit this machine.
        """
        check_memory(self.config, self.encoder.schema)
        return network_of(self.config, self.encoder, self.label_moments)


def prepare(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    remote: bool = False,
    tell: Tell = lambda text: None,
) -> Prepared:
    """Fits data and configuration to each other, learns vocabularies and statistics, builds the network.

    For the arguments see `easyrec.workflow.train`; where tables are `remote`, on parameter servers, the network is only
    tried, and made here when it is asked for.
    """
    loaded = parse_config(config, overrides)
    if problems := check_names(loaded):
        raise ConfigError(problems)
    directory = Path(run) if run is not None else Path(loaded.output) / loaded.name
    folder = RunFolder(directory)
    continued = resume and folder.exists()
    if not continued:
        folder = find_place(directory, overwrite=overwrite)
    prepared_before = folder.prepared.exists()
    try:
        tell("reading the data")
        dataset = open_dataset(loaded, cache=folder.prepared)
        resolved = _resolved(loaded, dataset)
        changed: list[str] = []
        if continued:
            open_run(directory, resolved)
            changed = [_changed(table) for table in changed_data(folder, dataset.fingerprints)]
            for note in changed:
                tell(f"note: {note}")
        prepared = _assemble(folder, dataset.bind(resolved), continued, remote, tell)
        with _writing(folder):
            if not continued:
                start_run(folder, resolved, dataset.fingerprints)
                dataset.store.prune()
            if not _fitted(folder):
                _save_features(folder, prepared.encoder)
    except BaseException:
        if not prepared_before:
            abandon(folder)
        raise
    prepared.notes.extend(changed)
    return prepared


def _resolved(loaded: PipelineConfig, dataset: Dataset) -> PipelineConfig:
    """The configuration with all that follows from the data written in."""
    resolved = resolve(loaded, dataset.columns)
    return with_classes(resolved, dataset.bind(resolved)) if needs_classes(resolved) else resolved


def _changed(table: str) -> str:
    return (
        f"the files of the {table} data have changed since the run began (other names, sizes or times): what it has "
        "learned so far, its vocabularies too, comes from the old ones; start anew with --overwrite to have one state"
    )


def open_prepared(run: RunFolder, *, tell: Tell = lambda text: None) -> Prepared:
    """The data, features and network of a run that has been prepared before.

    Args:
        run: Its folder.
        tell: Called with one line of text as each step begins.
    """
    config = run.config()
    tell("reading the data")
    data = open_dataset(config, cache=run.prepared).bind(config)
    encoder = Encoder.load(config, run.features)
    return Prepared(run, config, data, encoder)


def prepare_shards(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    overwrite: bool = False,
    tell: Tell = lambda text: None,
) -> list[ShardSet]:
    """Encodes the data of a pipeline into shards, for a training that follows; what is there already is kept.

    Args:
        config: As for `prepare`.
        overrides: As for `prepare`.
        run: Folder of the run that will train; `<output>/<name>` unless given.
        overwrite: Replace shards that were prepared from something else.
        tell: Called with one line of text as each step begins, and every ten seconds.

    Returns:
        The shards of the training rows, and of the held-out rows if there are any.
    """
    folder, data, encoder = fitted(config, overrides, run=run, tell=tell)
    tell("preparing shards")
    place = shards_folder(data.config, folder.prepared)
    made = [training_shards(data.config, data, encoder, place, replace=overwrite, tell=tell)]
    if data.eval is not None:
        made.append(held_out_shards(data.config, data, encoder, place, tell=tell))
    return made


def fitted(
    config: ConfigSource,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    tell: Tell = lambda text: None,
) -> tuple[RunFolder, BoundDataset, Encoder]:
    """The folder, the data and the fitted features of a pipeline, with nothing written but prepared data."""
    loaded = parse_config(config, overrides)
    if problems := check_names(loaded):
        raise ConfigError(problems)
    folder = RunFolder(Path(run) if run is not None else Path(loaded.output) / loaded.name)
    tell("reading the data")
    dataset = open_dataset(loaded, cache=folder.prepared)
    data = dataset.bind(_resolved(loaded, dataset))
    tell("learning vocabularies and statistics")
    return folder, data, _fit_features(data)


def _assemble(run: RunFolder, data: BoundDataset, continued: bool, remote: bool, tell: Tell) -> Prepared:
    """Everything that training needs, with nothing of the run's folder changed but its prepared data.

    What is wrong with the data or the configuration comes to light here, before a run that is there is replaced.
    """
    config = data.config
    dense_optimizer(config.training.optimizer.dense)  # options that Keras refuses
    if continued and _fitted(run):
        encoder = Encoder.load(config, run.features)
        _read_through(data.train.chunks(columns=_label_columns(data)))
    else:
        tell("learning vocabularies and statistics")
        encoder = _fit_features(data)
    if data.eval is not None:
        _read_through(data.eval.chunks(columns=_label_columns(data)))
    moments = {label.task: (label.moments.mean, label.moments.deviation) for label in data.train.labels}
    prepared = Prepared(run, config, data, encoder, moments)
    if config.training.warm_start is not None and not (continued and CheckpointStore(run.checkpoints).all()):
        prepared.notes.extend(warm_start(prepared.network, encoder, config.training.warm_start).lines())
    check_network(config, encoder) if remote else prepared.network
    return prepared


def _fit_features(data: BoundDataset) -> Encoder:
    """Vocabularies and statistics in one pass over the training rows, which also counts them and checks the labels."""
    config = data.config
    item = item_feature(config)
    counted = [] if item is None else [item]
    encoder = Encoder(config, data.feature_columns)
    chunks = data.train.chunks(columns=[*encoder.fit_columns(counted), *_label_columns(data)])
    encoder.fit(chunks, counted)
    _read_through(chunks)
    return encoder


def _read_through(chunks: Iterable[Any]) -> None:
    """Reads what is left: a pass that goes to the end counts the rows and checks the labels."""
    for _ in chunks:
        pass


def _label_columns(data: BoundDataset) -> list[str]:
    return [label.column for label in data.train.labels]


@contextmanager
def _writing(run: RunFolder) -> Iterator[None]:
    """Says which folder it was that the operating system would not write to."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"the run's folder {run.directory} cannot be written: {error.strerror or error}. Make room or give "
            "permission, then go on with --resume"
        ) from error


def _fitted(run: RunFolder) -> bool:
    return run.features.is_dir()


def _save_features(run: RunFolder, encoder: Encoder) -> None:
    """Writes the fitted features, whole or not at all."""
    writing = run.features.with_name(f".{run.features.name}.writing")
    shutil.rmtree(writing, ignore_errors=True)  # of a process that was killed
    try:
        encoder.save(writing)
        writing.replace(run.features)
    finally:
        shutil.rmtree(writing, ignore_errors=True)

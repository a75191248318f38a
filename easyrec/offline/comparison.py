"""Two runs on the same evaluation rows and the same catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from easyrec.data.dataset import open_dataset
from easyrec.data.source import read_like
from easyrec.errors import DataError
from easyrec.export.bundle import Bundle
from easyrec.export.tables import KeyedTable
from easyrec.features.encoder import Encoder
from easyrec.offline.errors import raises_easyrec_errors
from easyrec.offline.evaluation import OfflineEvaluation, ScoreFunction
from easyrec.run import RunFolder, open_run
from evaluation import Comparison, TaskColumns, compare, compared_rankings
from evaluation.uncertainty import DEFAULT_RESAMPLES

_USER, _WEIGHT = "user", "weight"


@dataclass(frozen=True)
class Side:
    """One run, ready to be measured.

    Attributes:
        name: What it is called.
        folder: Its folder.
        bundle: Its model.
        offline: Its evaluation rows and catalogue.
    """

    name: str
    folder: RunFolder
    bundle: Bundle
    offline: OfflineEvaluation

    @property
    def ranks(self) -> bool:
        """Whether it ranks a catalogue."""
        return self.offline.ranks and self.bundle.runtime.has("score")

    def table(self) -> pa.Table:
        """Its predictions of the evaluation rows, user and weight under names of their own."""
        table = self.offline.predictions(lambda rows: self.bundle.runtime.predict(rows))
        user = self.offline.config.data.keys.user
        return table.rename_columns([_USER if name == user else name for name in table.column_names])


def open_side(
    run: str | Path,
    name: str,
    data: Sequence[str] | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> Side:
    """Loads a run and its evaluation rows.

    Args:
        run: Folder of the run.
        name: What it is called.
        data: Other evaluation rows than its own.
        tell: Called with one line of text as each step begins.

    Raises:
        EasyRecError: There is no such run, or it has no evaluation rows.
    """
    folder = open_run(run)
    config = folder.config()
    if data is not None:
        source = read_like(config.data.train, tuple(data))
        config = config.model_copy(
            update={"data": config.data.model_copy(update={"eval": source, "split": None})}
        )
    tell(f"loading {name}")
    bundle = Bundle.load(folder.bundle)
    rows = open_dataset(config, cache=folder.prepared).bind(config)
    if rows.eval is None:
        raise DataError(f"{folder.directory} has no evaluation rows: give them with --data")
    return Side(name, folder, bundle, OfflineEvaluation(config, rows, Encoder.load(config, folder.features)))


@raises_easyrec_errors
def compare_runs(
    reference: str | Path,
    model: str | Path,
    *,
    data: Sequence[str] | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Compares two runs by what they predict for the same rows and rank for the same users.

    Args:
        reference: Folder of the run that is the yardstick.
        model: Folder of the run that is judged.
        data: Evaluation rows of both; each run's own unless given, which must then be the same rows.
        resamples: Number of bootstrap resamples.
        seed: Their seed.
        tell: Called with one line of text as each step begins.

    Returns:
        The comparison; metrics of ranked lists are named `ranking/...`.

    Raises:
        EasyRecError: There is no such run, it has no evaluation rows, the runs have no task in common, or their rows
            differ.
    """
    names = _names(reference, model)
    first = open_side(reference, names[0], data, tell=tell)
    second = open_side(model, names[1], data, tell=tell)
    tasks = {
        name: task
        for name, task in first.offline.tasks.items()
        if name in second.offline.tasks and second.offline.tasks[name].type == task.type
    }
    ranked = _rankings(first, second, resamples, seed, tell) if first.ranks and second.ranks else None
    if not tasks and ranked is None:
        raise DataError(
            f"{first.folder.directory} and {second.folder.directory} have no task in common "
            f"({', '.join(first.offline.config.tasks)} and {', '.join(second.offline.config.tasks)})"
        )
    found = ranked
    if tasks:
        tell("comparing rows")
        rows = _rows(first, second, tasks, names, resamples, seed)
        found = rows if ranked is None else rows.joined(ranked.metrics.values(), ranked.notes)
    if found is None:  # excluded above; for the type checker
        raise DataError("there is nothing to compare")
    return found


def _names(reference: str | Path, model: str | Path) -> tuple[str, str]:
    names = Path(reference).name, Path(model).name
    return names if names[0] != names[1] else (str(reference), str(model))


def _rows(
    first: Side,
    second: Side,
    tasks: dict[str, TaskColumns],
    names: tuple[str, str],
    resamples: int,
    seed: int,
) -> Comparison:
    tables = first.table(), second.table()
    _refuse_other_rows(first, second, *tables)
    shared = [name for name in (_USER, _WEIGHT) if all(name in table.column_names for table in tables)]
    return compare(
        *tables,
        tasks=tasks,
        model_tasks={name: second.offline.tasks[name] for name in tasks},
        user=_USER if _USER in shared else None,
        weight=_WEIGHT if _WEIGHT in shared else None,
        names=names,
        resamples=resamples,
        seed=seed,
    )


def _refuse_other_rows(first: Side, second: Side, mine: pa.Table, other: pa.Table) -> None:
    shared = [name for name in mine.column_names if name in other.column_names]
    keys = [name for name in shared if name == _USER or name.startswith("label/")]
    if len(mine) == len(other) and all(mine[name].equals(other[name].cast(mine[name].type)) for name in keys):
        return
    raise DataError(
        f"{first.folder.directory} and {second.folder.directory} do not have the same evaluation rows "
        f"({len(mine):,} and {len(other):,}), so their figures cannot be compared: give both the same rows with --data"
    )


def _rankings(
    first: Side, second: Side, resamples: int, seed: int, tell: Callable[[str], None]
) -> Comparison | None:
    """Lists of both from the first run's catalogue; None where the second does not know its users or items."""
    a, b = first.offline.catalogue, second.offline.catalogue
    keys = [side.offline.config.data.keys for side in (first, second)]
    if keys[0].user is None or keys[1].user is None:
        return None
    items = b.items.positions(a.items.keys)
    users = KeyedTable(b.users, keys[1].user).positions(a.users[keys[0].user])
    if (items < 0).any() or (users < 0).any():
        return None
    tell("comparing ranked lists")
    k = sorted(set(first.offline.config.evaluation.k) & set(second.offline.config.evaluation.k))
    if not k:
        return None
    result = first.offline.ranking(
        {
            first.name: first.bundle.catalogue.ranker,
            second.name: _in_order(second.offline.scores(second.bundle.catalogue.ranker), users, items),
        },
        intervals=True,
        baselines=False,
        reference=first.name,
        resamples=resamples,
        k=k,
    )
    return Comparison(
        first.name,
        second.name,
        {one.name: one for one in compared_rankings(result, second.name)},
        "user",
        result.n_users,
        result.level,
        resamples,
        result.seed,
    )


def _in_order(
    score: ScoreFunction, users: npt.NDArray[np.int64], items: npt.NDArray[np.int64]
) -> ScoreFunction:
    """The scores of one catalogue in the order of another's users and items."""

    def scores(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return score(users[codes])[:, items]

    return scores

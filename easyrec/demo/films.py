"""From MovieLens ratings to a funnel: a two-tower model finds candidates, a DeepFM ranks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from easyrec.config.loader import load_config
from easyrec.data.dataset import open_dataset
from easyrec.demo.movielens import write_tables
from easyrec.examples import examples_of, typical_users
from easyrec.export.ranking import Ranker
from easyrec.export.recommend import Recommender
from easyrec.export.search import top_k
from easyrec.features.encoder import Encoder
from easyrec.offline import OfflineEvaluation, ScoreFunction
from easyrec.reports import Measured, write_evaluation_report
from easyrec.training.callbacks import Callback
from easyrec.workflow import Run, train
from evaluation import RankingResult
from evaluation.report import Example

CONFIGS = Path(__file__).resolve().parents[2] / "feature_configs"
RETRIEVER, RANKER = "movielens_two_tower.yaml", "movielens_deepfm.yaml"
FUNNEL = "two_tower, then deepfm"
CANDIDATES = 200


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration made.

    Attributes:
        retriever: The run of the two-tower model.
        ranker: The run of the DeepFM.
        ranking: The funnel beside the two-tower model alone and the baselines.
        examples: Users, what they liked last, and what is recommended.
        page: The HTML report.
    """

    retriever: Run
    ranker: Run
    ranking: RankingResult
    examples: Sequence[Example]
    page: Path


def run_demo(
    folder: Path,
    tell: Callable[[str], None],
    callbacks: Callable[[], Sequence[Callback]] = lambda: (),
) -> DemoResult:
    """Writes the tables, trains both models, compares the funnel with baselines, and recommends.

    Args:
        folder: Working folder: tables go to `data/movielens`, runs to `runs`.
        tell: Called with one line of text as each step begins.
        callbacks: Makes those that follow one training.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM came, during a training too.
    """
    data = folder / "data" / "movielens"
    rows = write_tables(data)
    tell(
        f"wrote {rows['train']:,} training ratings, {rows['eval']:,} later ones, {rows['movies']:,} movies to {data}"
    )
    runs = {}
    for name in (RETRIEVER, RANKER):
        tell(f"training {CONFIGS.name}/{name}")
        config = load_config(CONFIGS / name, _paths(data, folder / "runs"))
        runs[name] = train(config, overwrite=True, callbacks=callbacks())
        if runs[name].result.reason == "interrupted":
            raise KeyboardInterrupt  # as it comes at any other step
    retriever, ranker = runs[RETRIEVER], runs[RANKER]
    tell("comparing the funnel with baselines")
    ranking = compare(retriever, ranker)
    recommender = Recommender(ranker.bundle.catalogue, retriever.bundle.catalogue, CANDIDATES)
    examples = examples_of(recommender, ranker.bundle, typical_users(ranker.bundle, 3))
    page = write_evaluation_report(
        ranker.folder,
        ranker.folder.config(),
        Measured(ranker.measured.rows, ranking),
        examples=examples,
        model=FUNNEL,
        command="easyrec demo",
    )
    return DemoResult(retriever, ranker, ranking, examples, page)


def compare(retriever: Run, ranker: Run) -> RankingResult:
    """Ranked lists of the funnel, of each model alone, and of baselines, for the same users."""
    finder, judge = _offline(retriever), _offline(ranker)
    found = finder.scores(retriever.bundle.catalogue.ranker)
    models: dict[str, Ranker | ScoreFunction] = {
        FUNNEL: funnel(found, ranker.bundle.catalogue.ranker, judge.catalogue.users, judge.catalogue.seen),
        "two_tower": found,
        "deepfm": ranker.bundle.catalogue.ranker,
    }
    return judge.ranking(models, intervals=True)


def funnel(
    retriever: ScoreFunction, ranker: Ranker, users: pa.Table, seen: sparse.csr_array, size: int = CANDIDATES
) -> ScoreFunction:
    """Scores in which only the retriever's candidates can be recommended, in the ranker's order.

    Args:
        retriever: Scores [b, items] for user codes [b].
        ranker: Scores candidates.
        users: Raw columns by user code.
        seen: CSR [users, items], items that are no candidates.
        size: Candidates a user.
    """

    def score(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        found = np.array(retriever(codes), np.float32)
        mine = seen[codes].tocoo()
        found[mine.coords] = -np.inf
        scores = np.full_like(found, -np.inf)
        for row, code in enumerate(codes):
            candidates = np.sort(top_k(found[row], size))
            scores[row, candidates] = next(ranker.scores(users.slice(int(code), 1), candidates))
        return scores

    return score


def _offline(run: Run) -> OfflineEvaluation:
    config = run.folder.config()
    data = open_dataset(config, cache=run.folder.prepared).bind(config)
    return OfflineEvaluation(config, data, Encoder.load(config, run.folder.features))


def _paths(data: Path, runs: Path) -> list[str]:
    """Overrides that point a shipped configuration to the tables just written."""
    return [
        f"data.train={data / 'train.parquet'}",
        f"data.eval={data / 'eval.parquet'}",
        f"data.tables.item={data / 'movies.parquet'}",
        f"output={runs}",
    ]

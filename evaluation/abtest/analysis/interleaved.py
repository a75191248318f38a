"""Which of two rankers users prefer, from lists in which both were mixed."""

from dataclasses import dataclass
from typing import Any

from evaluation.abtest.analysis.engines import kept
from evaluation.abtest.analysis.run import Logs, experiment_of
from evaluation.abtest.analysis.tables import event_rows, exposure_rows, json_text, to_records
from evaluation.abtest.analysis.wording import probability, share
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.interleaving import TEAM_A, TEAM_B
from evaluation.abtest.schema import ExperimentsConfig
from evaluation.abtest.statistics.paired import Preference, preference


@dataclass(frozen=True)
class InterleavedResult:
    """What an interleaving experiment showed.

    Attributes:
        experiment: Its name.
        control: Name of ranker A.
        variant: Name of ranker B.
        users: Users who saw a mixed list.
        credits: Clicks credited to A, and to B.
        preference: Over the users with credited clicks.
        alpha: Level.
    """

    experiment: str
    control: str
    variant: str
    users: int
    credits: tuple[int, int]
    preference: Preference
    alpha: float

    @property
    def p_value(self) -> float:
        """Two-sided, of the mean user score."""
        return float(self.preference.contrast.p_value())

    def verdict(self) -> str:
        """In words."""
        one, score = self.preference, float(self.preference.contrast.estimate)
        if self.p_value >= self.alpha:
            return f"No preference shown between {self.control} and {self.variant} (p {probability(self.p_value)})."
        better = self.variant if score > 0 else self.control
        wins = max(one.wins_a, one.wins_b)
        return (
            f"Users prefer {better}: it wins with {share(wins / max(one.wins_a + one.wins_b, 1))} of the users who "
            f"prefer one (p {probability(self.p_value)})."
        )

    def to_text(self) -> str:
        """For a terminal."""
        low, high = (float(one) for one in self.preference.contrast.interval(self.alpha))
        one = self.preference
        votes = one.wins_a + one.wins_b + one.ties
        return "\n".join(
            [
                self.verdict(),
                f"users with a mixed list: {self.users:,}; with credited clicks: {votes:,}",
                f"users who prefer {self.control}: {one.wins_a:,}, {self.variant}: {one.wins_b:,}, "
                f"neither: {one.ties:,} (sign test p {probability(one.sign_p)})",
                f"credited clicks: {self.control} {self.credits[0]:,}, {self.variant} {self.credits[1]:,}",
                f"mean user score {float(one.contrast.estimate):+.4f} [{low:+.4f}, {high:+.4f}], from -1 (all for "
                f"{self.control}) to 1 (all for {self.variant})",
            ]
        )


def analyze_interleaved(
    config: ExperimentsConfig, experiment: str, logs: Logs, *, event: str = "click"
) -> InterleavedResult:
    """Credit clicks to the rankers that brought the items.

    An item of a list counts once however often it is clicked. A user's score is (B - A) / (A + B) over the user's
    credited items, so that a busy user has one vote.

    Args:
        config: The file.
        experiment: Name of an experiment with `interleave: true`.
        logs: Exposures with `teams`, and events with request_id and item_id.
        event: Type of event that is credited.

    Raises:
        ExperimentDataError: It is another kind of experiment, or logs lack what is needed.
    """
    one = experiment_of(config, experiment)
    if not one.interleave:
        raise ExperimentDataError(
            f"{experiment!r} splits users and mixes no lists; use `easyrec ab analyze`."
        )
    unit = config.unit_of(one.layer)
    if logs.events is None or not {"request_id", "item_id"} <= set(logs.events.columns):
        raise ExperimentDataError("Interleaving needs events with the columns request_id and item_id.")
    rows = exposure_rows(logs.exposures)
    rows = rows.filter(
        (rows.experiment == experiment) & (rows.phase == one.phase) & ~rows.forced & rows.teams.notnull()
    )
    events = event_rows(logs.events, unit if unit in logs.events.columns else "request_id")
    clicks = events.filter((events.type == event) & events.item_id.notnull() & events.request_id.notnull())
    clicked = clicks.select("request_id", item=clicks.item_id.cast("string")).distinct()
    shown = rows.select("request_id", "teams", owner=rows.unit)
    joined = clicked.inner_join(shown, "request_id")
    team = json_text(joined.teams, joined.item)
    credited = joined.mutate(a=(team == TEAM_A).cast("int64"), b=(team == TEAM_B).cast("int64"))
    users = kept(credited.group_by("owner").aggregate(a=credited.a.sum(), b=credited.b.sum()))
    voting = users.filter(users.a + users.b > 0)
    scores = voting.select(score=(voting.b - voting.a) / (voting.a + voting.b).cast("float64"))
    [totals] = to_records(users.aggregate(a=users.a.sum(), b=users.b.sum()))
    [seen] = to_records(rows.aggregate(users=rows.unit.nunique()))
    variant = next(name for name in one.variants if name != one.control)
    return InterleavedResult(
        experiment,
        one.control,
        variant,
        int(seen["users"]),
        (int(totals["a"] or 0), int(totals["b"] or 0)),
        preference(_column(scores)),
        one.analysis.alpha,
    )


def _column(scores: Any) -> Any:
    return scores.to_pyarrow()["score"].to_numpy()

"""Which variant a unit gets: a pure function of the compiled configuration, the unit, its attributes and the time.

    holdout draw -> domain draw -> for each layer: segment draw -> owner -> dates, condition -> variant draw

Every draw has a salt of its own. Nothing is remembered about users, nothing is locked: an `Assigner` never changes, so
any number of threads share it, and a new configuration is a new `Assigner`. Standard library only.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evaluation.abtest.conditions import Predicate
from evaluation.abtest.hashing import BUCKETS, unit_text

ASSIGNED = "assigned"
FORCED = "allowlist"
HOLDOUT = "holdout"
NO_UNIT = "no_unit"
FREE = "free_segment"
OUTSIDE_DATES = "outside_dates"
CONDITION = "condition"
NO_COVERAGE = "no_coverage"

TIME_SLOT = "time_slot"
INTERLEAVED = "interleaved"
"""The variant of everybody in an experiment that mixes the lists of two."""
_NOTHING: Mapping[str, Any] = {}


class Variant(NamedTuple):
    """A variant as it is served: its name, and the parameters it sets."""

    key: str
    overrides: Mapping[str, Any]


class Assignment(NamedTuple):
    """What one layer decided for a request.

    Attributes:
        layer: Name of the layer.
        experiment: Name of the experiment, None if the unit is in none.
        phase: Of the experiment.
        variant: Name of the variant, None if the unit is in none.
        overrides: Parameters that the variant sets.
        reason: Why: "assigned", "allowlist" (forced), or what keeps the unit out: "holdout", "no_unit" (its id is
            missing or empty), "free_segment", "outside_dates", "condition", "no_coverage".
        bucket: The unit's segment in the layer, 0 to 9999; -1 if none was drawn.
        unit_type: Which id was used.
        unit: Its text.
    """

    layer: str
    experiment: str | None
    phase: int
    variant: str | None
    overrides: Mapping[str, Any]
    reason: str
    bucket: int
    unit_type: str
    unit: str

    @property
    def forced(self) -> bool:
        """Whether an allow list chose the variant; such rows are no evidence."""
        return self.reason == FORCED


class Decision(NamedTuple):
    """What all layers decided for a request.

    Attributes:
        parameters: Scene parameters to change: the layers' defaults, over them what variants set.
        assignments: One a layer of the unit's domain, in order.
        holdout: Whether the unit is in the holdout and gets no change at all.
    """

    parameters: Mapping[str, Any]
    assignments: tuple[Assignment, ...]
    holdout: bool

    @property
    def active(self) -> tuple[Assignment, ...]:
        """The assignments that chose a variant."""
        return tuple(one for one in self.assignments if one.variant is not None)


@dataclass(frozen=True, slots=True)
class CompiledExperiment:
    """An experiment ready to assign.

    Attributes:
        key: Name.
        phase: Phase.
        choose: From a unit's text to the variant, None outside its coverage.
        when: Condition on attributes, None for everybody.
        start: Seconds since 1970 from which it runs.
        end: Seconds since 1970 at which it ends.
    """

    key: str
    phase: int
    choose: Callable[[str], Variant | None]
    when: Predicate | None = None
    start: float = float("-inf")
    end: float = float("inf")


@dataclass(frozen=True, slots=True)
class CompiledLayer:
    """A layer ready to assign.

    Attributes:
        key: Name.
        unit: Which id is drawn on.
        draw: Draw of the segment.
        starts: First bucket of each owned range, ascending.
        ends: Bucket after the last of each owned range.
        owners: Experiment of each range.
        forced: By unit text, what the allow lists say.
        defaults: Parameters for everybody outside the holdout.
        slot_seconds: Length of a slot where the unit is a time slot.
    """

    key: str
    unit: str
    draw: Callable[[str], int]
    starts: list[int]
    ends: list[int]
    owners: list[CompiledExperiment]
    forced: Mapping[str, tuple[CompiledExperiment, Variant]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    slot_seconds: int = 0

    def assign(self, unit: str, attributes: Mapping[str, Any], now: float, held_out: bool) -> Assignment:
        """What this layer decides for a unit."""
        if not unit:
            return self._nobody(None, NO_UNIT, -1, unit)
        if self.forced and unit in self.forced:
            experiment, variant = self.forced[unit]
            return self._chosen(experiment, variant, FORCED, -1, unit)
        if held_out:
            return self._nobody(None, HOLDOUT, -1, unit)
        bucket = (self.draw(unit) * BUCKETS) >> 64
        place = bisect_right(self.starts, bucket) - 1
        if place < 0 or bucket >= self.ends[place]:
            return self._nobody(None, FREE, bucket, unit)
        experiment = self.owners[place]
        if not experiment.start <= now < experiment.end:
            return self._nobody(experiment, OUTSIDE_DATES, bucket, unit)
        if experiment.when is not None and not experiment.when(attributes):
            return self._nobody(experiment, CONDITION, bucket, unit)
        chosen = experiment.choose(unit)
        if chosen is None:
            return self._nobody(experiment, NO_COVERAGE, bucket, unit)
        return self._chosen(experiment, chosen, ASSIGNED, bucket, unit)

    def _chosen(
        self, experiment: CompiledExperiment, variant: Variant, reason: str, bucket: int, unit: str
    ) -> Assignment:
        return Assignment(
            self.key,
            experiment.key,
            experiment.phase,
            variant.key,
            variant.overrides,
            reason,
            bucket,
            self.unit,
            unit,
        )

    def _nobody(
        self, experiment: CompiledExperiment | None, reason: str, bucket: int, unit: str
    ) -> Assignment:
        name, phase = (experiment.key, experiment.phase) if experiment else (None, 0)
        return Assignment(self.key, name, phase, None, _NOTHING, reason, bucket, self.unit, unit)


class Assigner:
    """Assigns units under one configuration.

    Args:
        config_hash: Identifies the configuration; it goes into every row of the exposure log.
        unit: The id that holdout and domains are drawn on.
        layers: By name, in order.
        domains: (cumulative end bucket, names of layers) in order; empty for one domain of all layers.
        draw_domain: Draw for the domain.
        holdout: Buckets of the holdout, of 10,000.
        draw_holdout: Draw for the holdout.
    """

    def __init__(
        self,
        config_hash: str,
        unit: str,
        layers: Mapping[str, CompiledLayer],
        *,
        domains: list[tuple[int, list[str]]],
        draw_domain: Callable[[str], int],
        holdout: int,
        draw_holdout: Callable[[str], int],
    ) -> None:
        self.config_hash = config_hash
        self.unit = unit
        self._all = tuple(layers.values())
        self._domain_ends = [end for end, _ in domains]
        self._domains = [tuple(layers[name] for name in names) for _, names in domains]
        self._draw_domain = draw_domain
        self._holdout = holdout
        self._draw_holdout = draw_holdout

    def assign(
        self, units: Mapping[str, Any], attributes: Mapping[str, Any] = _NOTHING, now: float | None = None
    ) -> Decision:
        """Decide for a request.

        A request without the main unit is in no holdout, and in no domain where there are several.

        Args:
            units: Ids by unit type, such as {"user_id": 42, "session_id": "a1"}. Numbers and text are alike.
            attributes: What conditions may ask for.
            now: Seconds since 1970; the clock's unless given.

        Returns:
            The decision. Nothing about the input makes this fail: an id that is missing, empty or of a strange type
            is reported as "no_unit".
        """
        if now is None:
            now = time.time()
        texts = {name: unit_text(value) for name, value in units.items()}
        main = texts.get(self.unit, "")
        held_out = bool(self._holdout and main and (self._draw_holdout(main) * BUCKETS) >> 64 < self._holdout)
        parameters: dict[str, Any] = {}
        assignments = []
        for layer in self._layers_for(main):
            unit = slot_text(now, layer.slot_seconds) if layer.slot_seconds else texts.get(layer.unit, "")
            one = layer.assign(unit, attributes, now, held_out)
            if layer.defaults and not held_out:
                parameters.update(layer.defaults)
            if one.overrides:
                parameters.update(one.overrides)
            assignments.append(one)
        return Decision(parameters, tuple(assignments), held_out)

    def _layers_for(self, main: str) -> tuple[CompiledLayer, ...]:
        if not self._domains:
            return self._all
        if not main:
            return ()
        place = bisect_right(self._domain_ends, (self._draw_domain(main) * BUCKETS) >> 64)
        return self._domains[place] if place < len(self._domains) else ()


def slot_text(now: float, seconds: int) -> str:
    """The time slot of a moment: its start in seconds since 1970."""
    return str(int(now // seconds) * seconds)

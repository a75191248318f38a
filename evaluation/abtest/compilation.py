"""From a checked configuration to an `Assigner`: everything that can be computed once is computed here."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from evaluation.abtest.assignment import (
    INTERLEAVED,
    TIME_SLOT,
    Assigner,
    CompiledExperiment,
    CompiledLayer,
    Variant,
)
from evaluation.abtest.conditions import compile_condition
from evaluation.abtest.growthbook import bucket_ranges, choose_variation, drawer_v2, in_namespace
from evaluation.abtest.hashing import BUCKETS, drawer, unit_text
from evaluation.abtest.schema import ExperimentConfig, ExperimentsConfig


def compile_assigner(config: ExperimentsConfig) -> Assigner:
    """Compile a configuration that `evaluation.abtest.loading` accepted.

    Returns:
        An assigner that never changes and may be shared by threads.
    """
    experiments = {
        name: _experiment(config, name, one)
        for name, one in config.experiments.items()
        if one.status == "running"
    }
    layers = {name: _layer(config, name, experiments) for name in config.layers}
    domains = config.domains.values()
    ends = accumulate(round(domain.percent * BUCKETS / 100) for domain in domains)
    holdout = config.holdout
    return Assigner(
        config.hash,
        config.unit,
        layers,
        domains=list(zip(ends, (list(domain.layers) for domain in domains), strict=True)),
        draw_domain=drawer("domains"),
        holdout=round(holdout.percent * BUCKETS / 100) if holdout else 0,
        draw_holdout=drawer(holdout.salt if holdout else "holdout"),
    )


def compile_experiment(config: ExperimentsConfig, experiment: str, phase: int) -> CompiledExperiment:
    """One experiment as it assigned in a phase, whatever its status is now: for replaying what a log says."""
    then = config.experiments[experiment].model_copy(update={"phase": phase})
    return _experiment(config.model_copy(update={"experiments": {experiment: then}}), experiment, then)


def _layer(config: ExperimentsConfig, name: str, compiled: dict[str, CompiledExperiment]) -> CompiledLayer:
    layer = config.layers[name]
    mine = {key: one for key, one in compiled.items() if config.experiments[key].layer == name}
    owned = sorted((start, end, key) for key in mine for start, end in config.segments_of(key) if start < end)
    unit = config.unit_of(name)
    return CompiledLayer(
        key=name,
        unit=unit,
        draw=drawer(config.salt_of_layer(name)),
        starts=[start for start, _, _ in owned],
        ends=[end for _, end, _ in owned],
        owners=[mine[key] for _, _, key in owned],
        forced={
            unit_text(who): (mine[key], Variant(variant, config.experiments[key].variants[variant].overrides))
            for key in mine
            for who, variant in config.experiments[key].allowlist.items()
        },
        defaults=layer.defaults,
        slot_seconds=60 * (layer.slot_minutes or 60) if unit == TIME_SLOT else 0,
    )


def _experiment(config: ExperimentsConfig, name: str, one: ExperimentConfig) -> CompiledExperiment:
    variants = [Variant(key, variant.overrides) for key, variant in one.variants.items()]
    weights = [variant.weight for variant in one.variants.values()]
    salt = config.salt_of_experiment(name)
    if one.interleave:
        choose = _always(Variant(INTERLEAVED, {}))
    elif one.algorithm == "growthbook-v2":
        choose = _growthbook(salt, variants, weights, one)
    else:
        choose = _weighted(salt, variants, weights)
    return CompiledExperiment(
        key=name,
        phase=one.phase,
        choose=choose,
        when=compile_condition(one.when) if one.when else None,
        start=one.start.timestamp() if one.start else float("-inf"),
        end=one.end.timestamp() if one.end else float("inf"),
    )


def _always(variant: Variant) -> Callable[[str], Variant | None]:
    return lambda _: variant


def _weighted(salt: str, variants: list[Variant], weights: list[int]) -> Callable[[str], Variant | None]:
    draw = drawer(salt)
    bounds = list(accumulate(weights))
    total = bounds[-1]

    def choose(unit: str) -> Variant:
        return variants[bisect_right(bounds, (draw(unit) * total) >> 64)]

    return choose


def _growthbook(
    seed: str, variants: list[Variant], weights: list[int], one: ExperimentConfig
) -> Callable[[str], Variant | None]:
    draw = drawer_v2(seed)
    coverage = 1.0 if one.percent is None else one.percent / 100
    ranges = bucket_ranges(len(variants), coverage, [weight / sum(weights) for weight in weights])
    namespace = one.namespace

    def choose(unit: str) -> Variant | None:
        if namespace is not None and not in_namespace(unit, namespace):
            return None
        place = choose_variation(draw(unit), ranges)
        return variants[place] if place >= 0 else None

    return choose

"""What must hold across the parts of a configuration, and between it and the one that is live.

Paths of problems are keys joined by NUL here, because keys may hold dots; loading turns them into places.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from evaluation.abtest.assignment import TIME_SLOT
from evaluation.abtest.conditions import condition_problems
from evaluation.abtest.errors import Problem
from evaluation.abtest.hashing import BUCKETS, unit_text
from evaluation.abtest.metrics import BUILT_IN, CoverageMetric
from evaluation.abtest.schema import ExperimentConfig, ExperimentsConfig
from evaluation.errors import did_you_mean

Probe = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, str]]
"""From overrides by variant to what is wrong with each, by variant; empty if all can be served."""


def _at(message: str, *keys: str) -> Problem:
    return Problem(message, "\x00".join(keys))


def config_problems(
    config: ExperimentsConfig,
    parameters: Collection[str] | None = None,
    models: Mapping[str, Collection[str]] | None = None,
    probe: Probe | None = None,
) -> list[Problem]:
    """Everything that is wrong inside a configuration.

    Args:
        config: Of valid types.
        parameters: Scene parameters that exist, None if unknown.
        models: Loaded models by the parameter that names one, None if unknown.
        probe: Tries the variants of an experiment where they would be served, and says what is wrong.
    """
    problems = [*_owners(config), *_units(config), *_domains(config), *_salts(config)]
    for name, experiment in config.experiments.items():
        problems += _experiment(config, name, experiment)
    problems += _segments(config)
    if probe is not None:
        problems += _probed(config, probe)
    for keys, values in _settings(config):
        problems += _values(keys, values, parameters, models or {})
    return problems


def _owners(config: ExperimentsConfig) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for name, layer in config.layers.items():
        for parameter in layer.owns:
            if parameter in owner:
                yield _at(
                    f"the parameter {parameter!r} belongs to layer {owner[parameter]!r} already; two layers that set "
                    "one parameter would overwrite each other",
                    "layers",
                    name,
                    "owns",
                )
            owner.setdefault(parameter, name)
        for parameter in layer.defaults:
            if parameter not in layer.owns:
                yield _not_owned(parameter, name, layer.owns, "layers", name, "defaults", parameter)


def _not_owned(parameter: str, layer: str, owns: Collection[str], *keys: str) -> Problem:
    return _at(f"layer {layer!r} does not own this parameter; {did_you_mean(parameter, owns)}", *keys)


def _units(config: ExperimentsConfig) -> Iterator[Problem]:
    for name, layer in config.layers.items():
        is_slot = config.unit_of(name) == TIME_SLOT
        if layer.slot_minutes is not None and not is_slot:
            yield _at(f"needs `unit: {TIME_SLOT}`", "layers", name, "slot_minutes")
    if config.unit == TIME_SLOT:
        yield _at("a time slot is a unit of layers only: holdout and domains need a unit of people", "unit")


def _domains(config: ExperimentsConfig) -> Iterator[Problem]:
    total = sum(domain.percent for domain in config.domains.values())
    if total > 100 + 1e-9:
        yield _at(f"the domains take {total:g} percent of the traffic; 100 is all there is", "domains")
    for name, domain in config.domains.items():
        for place, layer in enumerate(domain.layers):
            if layer not in config.layers:
                message = f"there is no layer {layer!r}; {did_you_mean(layer, config.layers)}"
                yield _at(message, "domains", name, "layers", str(place))


def _salts(config: ExperimentsConfig) -> Iterator[Problem]:
    owner = {"domains": "the domains"}
    named = [("layers", name, config.salt_of_layer(name)) for name in config.layers]
    named += [("experiments", name, config.salt_of_experiment(name)) for name in config.experiments]
    if config.holdout:
        named.insert(0, ("holdout", "", config.holdout.salt))
    for kind, name, salt in named:
        who = f"{kind.removesuffix('s')} {name!r}" if name else "the holdout"
        if salt in owner:
            yield _at(
                f"uses the salt {salt!r} of {owner[salt]} again: the two draws would be one, and their splits the "
                "same; give it a salt of its own",
                *([kind, name, "salt"] if name else [kind, "salt"]),
            )
        owner.setdefault(salt, who)


def _experiment(config: ExperimentsConfig, name: str, one: ExperimentConfig) -> Iterator[Problem]:
    at = ("experiments", name)
    layer = config.layers.get(one.layer)
    if layer is None:
        yield _at(f"there is no layer {one.layer!r}; {did_you_mean(one.layer, config.layers)}", *at, "layer")
    yield from _variants(one, at)
    for variant, settings in one.variants.items():
        for parameter in settings.overrides if layer else ():
            if layer and parameter not in layer.owns:
                yield _not_owned(
                    parameter, one.layer, layer.owns, *at, "variants", variant, "overrides", parameter
                )
    if one.start and one.end and one.end <= one.start:
        yield _at(f"ends at {one.end.isoformat()}, before it starts at {one.start.isoformat()}", *at, "end")
    if one.when is not None:
        for problem in condition_problems(one.when, "when"):
            yield _at(problem.message, *at, *problem.path.split("."))
    known = {**BUILT_IN, **config.metrics}
    for kind in ("goals", "guardrails", "secondary"):
        for metric in getattr(one.metrics, kind):
            if metric not in known:
                message = f"there is no metric {metric!r}; {did_you_mean(metric, known)}"
                yield _at(message, *at, "metrics", kind)
            elif kind != "secondary" and isinstance(known[metric], CoverageMetric):
                message = (
                    f"{metric!r} is one number of a whole arm and has no test; list it under `secondary`"
                )
                yield _at(message, *at, "metrics", kind)
    yield from _traffic(config, one, at)


def _variants(one: ExperimentConfig, at: tuple[str, str]) -> Iterator[Problem]:
    controls = [key for key, variant in one.variants.items() if variant.control] or [
        key for key in one.variants if key == "control"
    ]
    if len(one.variants) < 2:
        yield _at("needs at least two variants, one of them the control", *at, "variants")
    elif len(controls) != 1:
        found = "none is" if not controls else f"{', '.join(controls)} are"
        message = f"needs exactly one control ({found}): mark it with `control: true`, or name it control"
        yield _at(message, *at, "variants")
    if one.interleave and len(one.variants) != 2:
        yield _at(f"interleaving mixes two variants, got {len(one.variants)}", *at, "interleave")
    if one.variants and not sum(variant.weight for variant in one.variants.values()):
        yield _at("all weights are 0", *at, "variants")
    for who, variant in one.allowlist.items():
        if not unit_text(who):
            yield _at("the id of a unit is empty", *at, "allowlist", who)
        if variant not in one.variants:
            message = f"there is no variant {variant!r}; {did_you_mean(variant, one.variants)}"
            yield _at(message, *at, "allowlist", who)


def _traffic(config: ExperimentsConfig, one: ExperimentConfig, at: tuple[str, str]) -> Iterator[Problem]:
    alone = [
        key for key, other in config.experiments.items() if other.layer == one.layer and other.holds_segments
    ]
    if one.algorithm == "growthbook-v2":
        if one.segments is not None:
            yield _at("growthbook-v2 covers traffic by `percent`, not by segments", *at, "segments")
        if set(alone) - {at[1]} and one.holds_segments:
            others = ", ".join(sorted(set(alone) - {at[1]}))
            message = f"growthbook-v2 draws over all units, so it needs a layer of its own, without {others}"
            yield _at(message, *at, "layer")
        return
    if one.namespace is not None:
        yield _at("namespaces belong to `algorithm: growthbook-v2`", *at, "namespace")
    if one.segments is not None and one.percent is not None:
        yield _at("`segments` says it all; leave `percent` out", *at, "percent")
    if one.status == "running" and one.segments is None and one.percent is None:
        yield _at("runs on no traffic: give `percent`, or `segments`", *at)
    if one.percent is not None and one.segments is None and one.holds_segments and len(alone) > 1:
        yield _at(
            f"layer {one.layer!r} holds several experiments, so a percentage does not say whose buckets are whose: "
            "run `easyrec ab allocate`, which writes segments",
            *at,
            "percent",
        )


def _segments(config: ExperimentsConfig) -> Iterator[Problem]:
    for layer in config.layers:
        owned: list[tuple[int, int, str]] = []
        for name, one in config.experiments.items():
            if one.layer != layer:
                continue
            for start, end in one.segments or ():
                if start >= end:
                    yield _at(
                        f"the segment [{start}, {end}) is empty: its end is left out, so [0, {BUCKETS}] is all",
                        "experiments",
                        name,
                        "segments",
                    )
            if one.holds_segments and one.algorithm != "growthbook-v2":
                owned += [(start, end, name) for start, end in config.segments_of(name)]
        owned.sort()
        for (_, end, first), (start, _, second) in pairwise(owned):
            if start < end:
                who = "itself" if first == second else repr(first)
                stopped = config.experiments[first].status == "stopped"
                hint = f"; {first!r} is stopped and keeps its users until `released: true`" if stopped else ""
                message = f"bucket {start} of layer {layer!r} belongs to {who} already{hint}"
                yield _at(message, "experiments", second, "segments")
        yield from _allowlists(config, layer)


def _allowlists(config: ExperimentsConfig, layer: str) -> Iterator[Problem]:
    running = {
        name: one
        for name, one in config.experiments.items()
        if one.layer == layer and one.status == "running"
    }
    count = Counter(unit_text(who) for one in running.values() for who in one.allowlist)
    for name, one in running.items():
        for who in one.allowlist:
            if count[unit_text(who)] > 1:
                message = (
                    f"stands in several allow lists of layer {layer!r}, which holds one experiment a unit"
                )
                yield _at(message, "experiments", name, "allowlist", who)


def _probed(config: ExperimentsConfig, probe: Probe) -> Iterator[Problem]:
    for name, one in config.experiments.items():
        if one.status in ("running", "paused"):
            found = probe({key: variant.overrides for key, variant in one.variants.items()})
            for key, message in found.items():
                yield _at(message, "experiments", name, "variants", key, "overrides")


def _settings(config: ExperimentsConfig) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for name, layer in config.layers.items():
        yield ("layers", name, "defaults"), layer.defaults
    for name, one in config.experiments.items():
        for key, variant in one.variants.items():
            yield ("experiments", name, "variants", key, "overrides"), variant.overrides


def _values(
    keys: tuple[str, ...],
    values: Mapping[str, Any],
    parameters: Collection[str] | None,
    models: Mapping[str, Collection[str]],
) -> Iterator[Problem]:
    for parameter, value in values.items():
        if parameters is not None and parameter not in parameters:
            yield _at(f"is no parameter of a scene; {did_you_mean(parameter, parameters)}", *keys, parameter)
        elif parameter in models and str(value) not in models[parameter]:
            message = f"the model {value!r} is not loaded; {did_you_mean(str(value), models[parameter])}"
            yield _at(message, *keys, parameter)


_FROZEN = ("salt", "algorithm", "layer", "namespace")


def change_problems(old: ExperimentsConfig, new: ExperimentsConfig) -> list[Problem]:
    """What a change of a live configuration would do to units that already saw something.

    Args:
        old: The live configuration.
        new: The one that is to replace it; without problems of its own.

    Returns:
        A problem for everything that would move units between variants without a new phase.
    """
    problems = []
    for name, one in new.experiments.items():
        before = old.experiments.get(name)
        if before is None or "draft" in (before.status, one.status):
            continue
        if one.phase < before.phase:
            problems.append(_at(f"goes back from phase {before.phase} to {one.phase}", "experiments", name))
        elif one.phase == before.phase:
            problems += _moved(name, before, one)
            if one.status == "running":
                problems += _shrunk(name, old, new)
    for layer in set(old.layers) & set(new.layers):
        live = [
            name for name, one in new.experiments.items() if one.layer == layer and one.status == "running"
        ]
        moved = old.salt_of_layer(layer) != new.salt_of_layer(layer) or old.unit_of(layer) != new.unit_of(
            layer
        )
        if moved and any(
            name in old.experiments and old.experiments[name].status == "running" for name in live
        ):
            message = (
                f"another salt or unit draws new users for {', '.join(live)}, which run; stop them first"
            )
            problems.append(_at(message, "layers", layer))
    return problems


def _moved(name: str, before: ExperimentConfig, one: ExperimentConfig) -> Iterator[Problem]:
    what = [key for key in _FROZEN if getattr(before, key) != getattr(one, key)]
    weights = [{key: variant.weight for key, variant in side.variants.items()} for side in (before, one)]
    if list(weights[0].items()) != list(weights[1].items()):
        what.append("weights or order of variants")
    if before.control != one.control:
        what.append("control")
    if what:
        changed = " and ".join(what)
        message = f"{changed} changed, which moves users between variants: give it `phase: {one.phase + 1}`"
        yield _at(message, "experiments", name)


def _shrunk(name: str, old: ExperimentsConfig, new: ExperimentsConfig) -> Iterator[Problem]:
    before, after = old.segments_of(name), new.segments_of(name)
    lost = _buckets(before) - _buckets(after)
    fewer = (old.experiments[name].percent or 0) > (new.experiments[name].percent or 0)
    if lost or (new.experiments[name].algorithm == "growthbook-v2" and fewer):
        yield _at(
            f"takes {len(lost)} buckets away from users who are in it; traffic only grows within a phase. Stop the "
            f"experiment, or give it `phase: {new.experiments[name].phase + 1}`",
            "experiments",
            name,
            "segments",
        )


def _buckets(segments: list[tuple[int, int]]) -> set[int]:
    return {bucket for start, end in segments for bucket in range(start, end)}

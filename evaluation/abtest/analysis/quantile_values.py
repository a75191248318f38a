"""Quantiles of a column of the exposures, in bounded memory: from counts in bins 0.05% wide."""

import math
from typing import Any

import ibis
import numpy as np

from evaluation.abtest.analysis.engines import kept
from evaluation.abtest.analysis.tables import numeric, real, to_records
from evaluation.abtest.analysis.units import UnitTable
from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.metrics import QuantileMetric
from evaluation.abtest.statistics.moments import Moments
from evaluation.abtest.statistics.quantiles import QuantileMoments, level_interval
from evaluation.arrays import FloatArray

_BINS = 2000
_SMALLEST = 1e-9
_NEGATIVE = -(2**60)


def quantile_moments(table: UnitTable, metric: QuantileMetric) -> dict[str, QuantileMoments]:
    """The quantile of each variant, its error computed over units.

    Args:
        table: Units and their exposure rows.
        metric: What is asked for.

    Raises:
        ExperimentDataError: The column is missing, holds no numbers, or negative ones.
    """
    name = metric.value.exposure or ""
    owners = table.units.select("unit", "id", assigned="variant")
    rows = table.rows.inner_join(owners, "unit")
    if name not in rows.columns:
        numeric(rows, name, "A quantile")
    if not (rows[name].type().is_numeric() or rows[name].type().is_boolean()):
        raise ExperimentDataError(
            f"A quantile of {name!r} needs numbers, and the column holds {rows[name].type()}."
        )
    known = rows.filter(rows[name].notnull())
    value = numeric(known, name, "A quantile")
    # Equal bins on the logarithm: the error is 0.05% of the value, however long the log is.
    place = ((ibis.greatest(value, real(0)) + _SMALLEST).ln() * _BINS).floor().cast("int64")
    place = ibis.ifelse(value < 0, ibis.literal(_NEGATIVE, "int64"), place)
    binned = kept(known.select("id", "assigned", place=place))
    histogram = to_records(binned.group_by("assigned", "place").aggregate(rows=binned.count()))
    if any(row["place"] == _NEGATIVE for row in histogram):
        _refuse_negative(known, value, name)
    result = {}
    for variant in sorted({row["assigned"] for row in histogram}):
        mine = sorted((row["place"], row["rows"]) for row in histogram if row["assigned"] == variant)
        places, counts = np.array(mine, dtype=np.float64).T
        result[variant] = _one(binned, variant, places, counts, metric.quantile)
    return result


def _one(binned: Any, variant: str, places: FloatArray, counts: FloatArray, level: float) -> QuantileMoments:
    share = np.cumsum(counts) / counts.sum()
    cut = places[min(int(np.searchsorted(share, level)), len(places) - 1)]
    mine = binned.filter(binned.assigned == variant)
    below = (mine.place <= int(cut)).cast("float64")
    units = mine.group_by("id").aggregate(n=below.sum(), d=mine.count().cast("float64"))
    [sums] = to_records(
        units.aggregate(
            c=units.count(),
            n=units.n.sum(),
            d=units.d.sum(),
            nn=(units.n * units.n).sum(),
            nd=(units.n * units.d).sum(),
            dd=(units.d * units.d).sum(),
        )
    )
    count = float(sums["c"])
    products = np.zeros((4, 4))
    products[0, 0], products[1, 1], products[3, 3] = sums["nn"], sums["dd"], count
    products[0, 1] = products[1, 0] = sums["nd"]
    products[0, 3] = products[3, 0] = sums["n"]
    products[1, 3] = products[3, 1] = sums["d"]
    of_units = Moments.of_sums(count, np.array([sums["n"], sums["d"], 0.0, count]), products)
    se = math.sqrt(max(float(of_units.variance()), 0.0) / count) if count > 1 else math.nan
    low, high = level_interval(level, se)
    return QuantileMoments(
        _at(places, counts, level), _at(places, counts, low), _at(places, counts, high), count
    )


def _at(places: FloatArray, counts: FloatArray, level: float) -> float:
    """The value below which a share of the rows lies, interpolated inside its bin."""
    if math.isnan(level):
        return math.nan
    edges = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    index = min(int(np.searchsorted(edges, level, side="right")) - 1, len(places) - 1)
    inside = (level - edges[index]) / (edges[index + 1] - edges[index])
    return float(max(math.exp((places[index] + inside) / _BINS) - _SMALLEST, 0.0))


def _refuse_negative(rows: Any, value: Any, name: str) -> None:
    [found] = to_records(rows.aggregate(low=value.min(), unit=rows.unit.argmin(value)))
    raise ExperimentDataError(
        f"A quantile of {name!r} needs values of at least 0; unit {found['unit']!r} has {found['low']:g}."
    )

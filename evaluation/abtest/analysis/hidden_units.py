"""Units of keyed exposure logs: events get the same names, so that both are joined."""

from typing import Any

import ibis

from evaluation.abtest.errors import ExperimentDataError
from evaluation.abtest.pseudonyms import KEY, PREFIX, Pseudonyms

RAW = "raw_unit"
"""The column of events with the unit as it was sent."""


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def easyrec_pseudonym(text: str) -> str:  # type: ignore[empty-body]
    """The function that `hidden` puts into the database for its session."""


def hidden(rows: Any, pseudonyms: Pseudonyms | None, unit: str) -> Any:
    """Rows with the names of their units; those of before there was a key get theirs now.

    Args:
        rows: Exposures or events with a column unit.
        pseudonyms: Of the key; None leaves the rows alone.
        unit: Kind of the units.
    """
    if pseudonyms is None or not pseudonyms.hides(unit):
        return rows
    backend = rows.get_backend()
    if backend.name == "duckdb":
        backend.raw_sql(f"CREATE OR REPLACE TEMP MACRO easyrec_pseudonym(text) AS {pseudonyms.sql('text')}")
    else:
        body = pseudonyms.sql("text", spark=True)
        backend.raw_sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION easyrec_pseudonym(text STRING) RETURNS STRING "
            f"RETURN {body}"
        )
    name = ibis.ifelse(rows.unit.startswith(PREFIX), rows.unit, easyrec_pseudonym(rows.unit))
    return rows.mutate(**{RAW: rows.unit}, unit=name)


def refuse_strangers(units: Any, pseudonyms: Pseudonyms | None) -> None:
    """Says what is missing where units have names that nothing else in the logs has.

    Raises:
        ExperimentDataError: Some have: there is no key, or it is another one.
    """
    names = units.filter(units.unit.startswith(PREFIX))
    if pseudonyms is not None:
        names = names.filter(~names.unit.startswith(pseudonyms.prefix))
    found = names.select("unit").limit(1).to_pyarrow()
    if found.num_rows:
        what = "the key" if pseudonyms is None else "another key: the one"
        raise ExperimentDataError(
            f"The exposure log names its units by keyed hashes, such as {found['unit'][0].as_py()!r}; give the "
            f"analysis {what} with which the service ran, in ${KEY}."
        )

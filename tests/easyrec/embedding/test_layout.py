from __future__ import annotations

import numpy as np
import pytest

from easyrec.embedding.layout import build_groups
from easyrec.errors import ConfigError
from easyrec.features.outputs import IdsOutput


def test_outputs_of_one_width_share_a_fused_table_with_offsets_in_order():
    outputs = [
        IdsOutput("a", "a", 10, 4, "user"),
        IdsOutput("b", "b", 5, 8, "item"),
        IdsOutput("c", "c", 7, 4, "item"),
        IdsOutput("recent", "a", 10, 4, "user", pooling="mean", sequence=True, max_length=3),
    ]
    four, eight = build_groups(outputs)
    assert [(table.name, table.offset) for table in four.tables] == [("a", 0), ("c", 10)]
    assert four.rows == 17
    assert four.columns == (0, 2)
    assert four.single_offsets.tolist() == [0, 10]
    assert [output.feature for output in four.multis] == ["recent"]
    assert (eight.dim, eight.columns, eight.rows) == (8, (1,), 5)


def test_a_selection_keeps_the_columns_of_the_whole_batch():
    outputs = [IdsOutput(name, name, 10, 4, "user") for name in "abc"]
    (group,) = build_groups(outputs[1:], outputs)
    assert group.columns == (1, 2)


def test_tables_beyond_two_billion_rows_use_wide_ids():
    (group,) = build_groups([IdsOutput("a", "a", 2**31, 4, "user")])
    assert group.id_dtype is np.int64


@pytest.mark.parametrize(("rows", "dim", "what"), [(11, 4, "rows 11"), (10, 8, "dim 8")])
def test_features_that_share_a_table_must_agree_on_it(rows, dim, what):
    outputs = [IdsOutput("a", "shared", 10, 4, "user"), IdsOutput("b", "shared", rows, dim, "item")]
    with pytest.raises(ConfigError, match=rf"features.b.*'shared'.*'a'.*{what}"):
        build_groups(outputs)


def test_a_sequence_without_a_length_is_refused():
    with pytest.raises(ConfigError, match=r"features.s: a sequence needs `max_length`"):
        build_groups([IdsOutput("s", "s", 10, 4, "user", pooling="mean", sequence=True)])

"""float16 with a scaled loss on processes of their own, with tables in float32 and in half of it."""

import numpy as np
import pytest
import tensorflow as tf

from easyrec.fitting import fit
from tests.cluster.conftest import TWO, assert_close, log, weights

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
IN_ORDER = {"start_timeout": 120, "staleness": 1}
# With weighted features a compiled and an uncompiled step of float16 end 0.04 apart, on one machine too.
OPTIONS = {"precision": "float16", "words": False}


@pytest.fixture(scope="module")
def alone(make, tmp_path_factory):
    prepared = make(tmp_path_factory.mktemp("alone"), shuffle=False, **OPTIONS)
    fit(prepared)
    return prepared


def test_float16_learns_on_a_cluster_what_it_learns_on_one_machine(alone, make, tmp_path):
    prepared = make(tmp_path, shuffle=False, cluster=IN_ORDER, **OPTIONS)
    result = fit(prepared, cluster="local:workers=1,ps=2")
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    assert_close(weights(prepared), weights(alone))


@pytest.mark.parametrize("storage", ["bfloat16", "float16"])
def test_float16_learns_with_tables_of_half_the_bytes_and_several_workers(storage, alone, make, tmp_path):
    # In one stream: so few rows leave the order of four batches at once a share in the AUC of its own, in float32 too.
    prepared = make(tmp_path, storage=storage, cluster={"start_timeout": 120, "streams": 1}, **OPTIONS)
    result = fit(prepared, cluster=TWO)
    assert (result.reason, result.steps, result.examples) == ("completed", 76, 4800)
    found = log(prepared, "evaluation")[-1]["liked/auc"]
    assert found == pytest.approx(log(alone, "evaluation")[-1]["liked/auc"], abs=0.05)
    kinds = {name: name.split("/")[0] for name in weights(prepared) if name.count("/") == 1}  # no slots
    tables = [table for name, table in weights(prepared).items() if kinds.get(name) == "embedding"]
    assert tables
    for table in tables:
        kept = tf.cast(tf.cast(table, storage), tf.float32)
        np.testing.assert_array_equal(table, kept)  # what a checkpoint holds is what 16 bits can say
        assert table.std() > 0

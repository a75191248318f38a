"""What a training will take, beside what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from easyrec.features.batch import EncodedBatch, RaggedColumn
from easyrec.models.network import build_network
from easyrec.training.plan import plan_training
from easyrec.training.step import TrainStep
from tests.easyrec.training.small_pipeline import SCHEMA, pipeline, rows

SERVERS = 3


@pytest.mark.parametrize("optimizer", ["adagrad", "row_wise_adagrad", "lazy_adam"])
@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_memory_of_the_servers_is_that_of_their_variables(optimizer, storage):
    config = pipeline(optimizer={"embedding": optimizer})
    config = config.model_copy(update={"embedding": config.embedding.model_copy(update={"storage": storage})})
    plan = plan_training(config, SCHEMA, rows(count=32), servers=SERVERS, workers=2)
    network = build_network(config, SCHEMA, shards=SERVERS)
    step = TrainStep(network, config.training)

    held = np.zeros(SERVERS, np.int64)
    for key, table in network.embeddings.tables.items():
        for values in (table, *step.row_optimizer.slots[key].values()):
            held += [variable.shape.num_elements() * variable.dtype.size for variable in values.shards]
    dense = plan.dense_bytes // SERVERS
    assert plan.server_bytes() == tuple(held + dense)
    assert plan.table_bytes == held.sum()
    weights = sum(table.rows * table.dim for table in network.embeddings.tables.values())
    assert plan.parameters == weights + sum(int(np.prod(one.shape)) for one in network.variables)
    per_server = np.sum([table.rows_per_server for table in plan.tables], axis=0)
    embeddings = next(iter(network.embeddings.tables.values()))
    assert per_server.tolist() == [shard.shape[0] for shard in embeddings.shards]


def test_the_rows_of_a_step_are_those_that_its_batch_asks_for():
    config, batch = pipeline(), rows(count=32)
    plan = plan_training(config, SCHEMA, batch, servers=SERVERS, workers=2)
    network = build_network(config, SCHEMA, shards=SERVERS)
    lookup = network.embeddings.host_lookup(batch.as_dict())
    ids = np.concatenate([lookup[f"unique/{group.name}"].numpy() for group in network.embeddings.groups])
    assert plan.step_rows == tuple(np.bincount(ids % SERVERS, minlength=SERVERS))
    assert not any("hot shard" in line for line in plan.lines())
    assert any("3 servers, 2 workers" in line for line in plan.lines())


def test_a_server_that_is_asked_for_most_rows_is_warned_of():
    batch = rows(count=32)
    # All ids even, and tables of even length: every row lies on the first of two servers.
    dense = {**batch.dense, "ids": batch.dense["ids"] // 2 * 2}
    ragged = {
        name: RaggedColumn(column.values // 2 * 2, column.row_lengths)
        for name, column in batch.ragged.items()
    }
    plan = plan_training(pipeline(), SCHEMA, EncodedBatch(batch.num_rows, dense, ragged), servers=2)
    assert plan.hottest == 2
    assert any(line.startswith("hot shard: ps 0 is asked for 2.00 times") for line in plan.lines())


def test_each_table_says_what_it_puts_on_which_server():
    plan = plan_training(pipeline(), SCHEMA, rows(count=32), servers=SERVERS, workers=2)
    lines = plan.lines()
    for table in plan.tables:
        [line] = [line for line in lines if line.startswith(f"  table {table.name}:")]
        most = max(table.rows_per_server)
        assert f"; {most:,} rows, " in line
        if len(set(table.rows_per_server)) > 1:
            assert (
                f" on {', '.join(f'ps {i}' for i, n in enumerate(table.rows_per_server) if n == most)}, one"
                in line
            )


def test_bytes_of_a_worker_grow_with_the_batches_under_way():
    def bytes_of(**cluster):
        return plan_training(
            pipeline(cluster=cluster), SCHEMA, rows(count=32), servers=2, workers=2
        ).batch_bytes

    one = bytes_of(streams=1)
    assert bytes_of(streams=2) == 2 * one
    assert bytes_of() == 3 * one
    assert bytes_of(mode="synchronous") == one
    assert any(
        "of a worker: " in line for line in plan_training(pipeline(), SCHEMA, rows(), servers=2).lines()
    )


def test_replicas_in_step_hold_everything_and_send_each_other_gradients():
    config, batch = pipeline(), rows(count=32)
    alone = plan_training(config, SCHEMA, batch)
    assert alone.step_bytes == 0
    three = plan_training(config, SCHEMA, batch, workers=3)
    network = build_network(config, SCHEMA)
    lookup = network.embeddings.host_lookup(batch.as_dict())
    moved = 0.0
    for group in network.embeddings.groups:
        ids = lookup[f"unique/{group.name}"].numpy()
        widths = sum(dim for _, dim in network.embeddings.kinds(group))
        moved += 2 * (ids.nbytes + 4 * len(ids) * widths)  # what the two others send
    moved += 2 * 2 / 3 * 4 * three.dense
    assert three.step_bytes == pytest.approx(moved, abs=1)
    assert any("on each of 3 replicas" in line for line in three.lines())
    assert any(line.startswith("memory of each replica: ") for line in three.lines())

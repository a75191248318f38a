"""What `TF_CONFIG` and `--cluster` may say, and what is wrong with them."""

from __future__ import annotations

import json
import socket

import pytest
import tensorflow as tf

from easyrec.config.training import TrainingConfig
from easyrec.errors import ConfigError
from easyrec.training.cluster.roles import (
    ClusterError,
    LocalCluster,
    Role,
    check_port,
    free_ports,
    listens,
    local_addresses,
    parse_local,
    parse_tf_config,
    serves,
    wait_for,
)
from easyrec.training.strategy import choose
from easyrec.workflow import train

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def described(task=None, **cluster) -> str:
    return json.dumps({"cluster": cluster or CLUSTER, "task": task or {"type": "worker", "index": 1}})


def test_a_description_is_read_and_written_again():
    cluster = parse_tf_config(described())
    assert str(cluster.task) == "worker 1 at c:1"
    assert [role.short for role in cluster.servers] == ["worker:0", "worker:1", "ps:0"]
    assert parse_tf_config(cluster.tf_config(cluster.task)) == cluster
    assert parse_tf_config(described({"type": "ps", "index": "0"})).task == Role("ps", 0, "d:1")
    assert parse_tf_config(described({"type": "evaluator", "index": 0})).task.address == ""


@pytest.mark.parametrize("text", [None, "", "  ", "{}"])
def test_no_description_is_no_cluster(text):
    assert parse_tf_config(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "an object with `cluster` and `task` is needed"),
        ('{"cluster": {}}', "`task` says which process"),
        (described(worker="b:1"), "`cluster.worker` is a list of addresses"),
        (described(worker=["b"]), "the address of worker 0 is `host:port`, got 'b'"),
        (described(worker=["b:1", "b:99999"]), "got 'b:99999'"),
        (described(worker=["b:1"], ps=["b:1"]), "gives b:1 to both worker 0 and ps 0"),
        (described(worker=["b:\u0661"]), "the address of worker 0 is `host:port`"),
        (described({"type": "worker", "index": "²"}), "`task.index` is a number from 0, got '²'"),
        ("[" * 100_000, "is not JSON"),
        (described(master=["b:1"]), "Call it 'chief'"),
        (described(wrker=["b:1"]), "Did you mean 'worker'?"),
        (described(chief=["a:1", "b:1"]), "names 2 chiefs; there is one"),
        (described({"type": "wroker", "index": 0}), "Did you mean 'worker'?"),
        (
            described({"type": "worker", "index": 2}),
            "this process is worker 2, but `cluster.worker` has 2 addresses",
        ),
        (described({"type": "worker", "index": -1}), "`task.index` is a number from 0, got -1"),
        (described({"index": 1}), "`task` says which process"),
        (described({"type": "worker"}), "does not say which worker this is: give `task.index`, from 0 to 1"),
        (described({"type": "worker", "idx": 1}), "does not say which worker this is"),
        ('{"cluster": {"ps": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps"}}', "gives 'ps' twice"),
        ('{"task": {"type": "ps", "index": 0, "index": 1}}', "gives 'index' twice"),
        ('{"cluster": {}, "cluster": {}, "task": {}}', "gives 'cluster' twice"),
    ],
)
def test_a_wrong_description_is_explained_with_an_example(text, expected):
    with pytest.raises(ClusterError) as caught:
        parse_tf_config(text)
    assert expected in str(caught.value)
    assert "TF_CONFIG" in str(caught.value)
    assert "Example:" in str(caught.value)


def test_local_clusters():
    assert parse_local("local:workers=2,ps=3") == LocalCluster(2, 3)
    assert parse_local("local") == LocalCluster(1, 1)
    cluster = local_addresses(LocalCluster(2, 3))
    assert len({role.address for role in cluster.servers}) == 5
    assert cluster.task.job == "chief"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local:workers=²", "workers is a number from 1 to 64, got '²'"),
        ("local:workers=1,workers=2", "workers is given twice"),
        ("remote:workers=2", "the only kind is `local`, got 'remote'"),
        ("local:worker=2", "Did you mean 'workers'?"),
        ("local:workers=0", "workers is a number from 1 to 64, got '0'"),
        ("local:ps=x", "ps is a number from 1 to 64, got 'x'"),
    ],
)
def test_wrong_local_clusters(text, expected):
    with pytest.raises(ClusterError, match=expected.replace("?", r"\?")) as caught:
        parse_local(text)
    assert caught.value.exit_code == 2


def test_a_port_in_use_is_named_with_its_role():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"worker 3 at localhost:{port}: port {port} cannot be used"):
            check_port(Role("worker", 3, f"localhost:{port}"))


def test_a_role_that_never_appears_is_named():
    [port] = free_ports(1)
    with pytest.raises(ClusterError, match=f"no answer from ps 1 at 127.0.0.1:{port}"):
        wait_for([Role("ps", 1, f"127.0.0.1:{port}")], timeout=0.2)


def test_where_training_runs_is_decided_and_explained(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert choose(TrainingConfig()).strategy == "local"
    assert choose(TrainingConfig()).why.startswith("on this machine: TF_CONFIG describes no cluster")
    chosen = choose(TrainingConfig(), "local:workers=2,ps=1")
    assert (chosen.strategy, chosen.cluster) == ("parameter_server", LocalCluster(2, 1))
    with pytest.raises(ConfigError, match="'local' does not train on --cluster"):
        choose(TrainingConfig(strategy="local"), "local:workers=2")
    with pytest.raises(ClusterError, match="TF_CONFIG is not set"):
        choose(TrainingConfig(strategy="parameter_server"))
    monkeypatch.setenv("TF_CONFIG", described())
    chosen = choose(TrainingConfig())
    assert chosen.strategy == "parameter_server"
    assert "1 chief, 2 worker, 1 ps" in chosen.why
    assert choose(TrainingConfig(strategy="local")).cluster is None
    monkeypatch.setenv("TF_CONFIG", described(worker=["b:1", "c:1"], ps=["d:1"]))
    with pytest.raises(ClusterError, match=r"need a chief.*names no chief \(2 worker, 1 ps\)"):
        choose(TrainingConfig())


def test_strategies_in_step(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError, match=r"'gpu:7' is not on this machine"):
        choose(TrainingConfig(devices=("gpu:7",)))
    assert choose(TrainingConfig(devices=("cpu",))).strategy == "local"
    with pytest.raises(ConfigError, match=r"mirrored needs two or more devices"):
        choose(TrainingConfig(strategy="mirrored", devices=("cpu:0",)))
    with pytest.raises(ClusterError, match="multi_worker needs a cluster"):
        choose(TrainingConfig(strategy="multi_worker"))
    monkeypatch.setenv("TF_CONFIG", described())
    with pytest.raises(ClusterError, match="multi_worker has no ps"):
        choose(TrainingConfig(strategy="multi_worker"))
    for index in range(2):
        monkeypatch.setenv("TF_CONFIG", described({"type": "worker", "index": index}, worker=["b:1", "c:1"]))
        chosen = choose(TrainingConfig())
        assert (chosen.strategy, chosen.chief) == ("multi_worker", index == 0)
        assert "several workers and no ps" in chosen.why


def test_devices_must_be_where_the_model_is_computed(monkeypatch):
    config = TrainingConfig(devices=("gpu:7",))
    for job in ("chief", "ps"):
        monkeypatch.setenv("TF_CONFIG", described({"type": job, "index": 0}))
        assert choose(config).strategy == "parameter_server"
    monkeypatch.setenv("TF_CONFIG", described({"type": "worker", "index": 0}))
    with pytest.raises(ConfigError, match=r"'gpu:7' is not on this machine"):
        choose(config)
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(ConfigError, match=r"'gpu:7' is not on this machine"):
        choose(config, "local:workers=2")


def test_a_worker_that_would_train_is_told_how_to_start(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", described())
    config = {
        "data": {"train": "none.parquet"},
        "features": {"a": "id"},
        "model": "deepfm",
        "tasks": {"y": "binary"},
    }
    with pytest.raises(
        ClusterError, match=r"this process is worker 1 at c:1.*start it with `easyrec train CONFIG`"
    ):
        train(config)


def test_options_that_parameter_servers_do_not_have_are_refused_by_name(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = TrainingConfig(synchronized_batch_norm=True)
    assert choose(config).strategy == "local"
    with pytest.raises(ConfigError, match=r"training\.synchronized_batch_norm: on parameter servers"):
        choose(config, "local")
    for name, value in (("staleness", 2), ("streams", 2)):
        with pytest.raises(ValueError, match=f"`{name}` is about work that runs ahead"):
            TrainingConfig(cluster={"mode": "synchronous", name: value})


def test_a_role_is_there_when_it_answers_as_a_grpc_server_does():
    server = tf.distribute.Server.create_local_server()
    there = Role("ps", 0, server.target.removeprefix("grpc://"))
    assert serves(there)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        role = Role("ps", 0, f"127.0.0.1:{mute.getsockname()[1]}")
        assert listens(role)
        assert not serves(role, timeout=0.1)
    assert not listens(role)

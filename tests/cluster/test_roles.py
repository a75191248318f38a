"""Each role is the same command with its own `TF_CONFIG`, as TensorFlow users start clusters."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import local_roles
from tests.integration.tiny import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def logged(run: Path, event: str) -> list[dict]:
    log = run / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in map(json.loads, lines) if line["event"] == event]


def test_the_same_command_everywhere_and_a_chief_that_is_killed_goes_on(data, roles, tmp_path):
    config = pipeline(data, tmp_path)
    config["evaluation"] |= {"ranking": False}
    config["training"] |= {
        "epochs": 4,
        "shards": {"split_batches": 2},
        "checkpoints": {"every_steps": 8},
    }
    file = tmp_path / "films.yaml"
    file.write_text(yaml.safe_dump(config))
    run = tmp_path / "films"
    cluster = local_roles("chief", "worker", "ps")
    evaluator = roles.start(file, cluster, "evaluator")
    servers = [roles.start(file, cluster, job) for job in ("worker", "ps")]
    chief = roles.start(file, cluster, "chief")
    deadline = time.monotonic() + 240
    while len(logged(run, "checkpoint")) < 3:
        assert chief.poll() is None, chief.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    chief.send_signal(signal.SIGKILL)
    chief.wait()

    again = roles.start(file, cluster, "chief", "--resume")
    out, _ = again.communicate(timeout=240)
    assert again.returncode == 0, out
    assert all(server.poll() is None for server in servers)
    for server in servers:
        server.send_signal(signal.SIGTERM)
    assert [server.wait(60) for server in servers] == [0, 0]
    said, _ = evaluator.communicate(timeout=240)
    assert evaluator.returncode == 0, said

    epochs = logged(run, "epoch")
    assert [line["epoch"] for line in epochs] == [0, 1, 2, 3]
    assert {line["splits"] for line in epochs} == {19}
    summary = json.loads((run / "run.json").read_text())
    assert summary["training"]["examples"] == 4 * 2400
    assert summary["metrics"]["liked/auc"] > 0.7
    assert (run / "bundle" / "manifest.json").is_file()
    beside = [json.loads(line) for line in (run / "evaluator.jsonl").read_text().splitlines()]
    last = logged(run, "evaluation")[-1]
    assert beside[-1]["step"] == last["step"]
    assert beside[-1]["liked/auc"] == pytest.approx(last["liked/auc"], abs=1e-6)
    assert f"step {last['step']}" in said

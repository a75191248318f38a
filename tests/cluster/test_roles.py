"""Each role is the same command with its own `TF_CONFIG`, as TensorFlow users start clusters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from easyrec.training.cluster.roles import free_ports
from tests.integration.tiny import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def role(stack: ExitStack, file: Path, cluster: dict, job: str, *more: str) -> subprocess.Popen:
    task = {"cluster": cluster, "task": {"type": job, "index": 0}}
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", "from easyrec.cli.main import main; main()", "train", str(file), *more],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": json.dumps(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    )
    stack.callback(process.kill)
    return process


def logged(run: Path, event: str) -> list[dict]:
    log = run / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in map(json.loads, lines) if line["event"] == event]


def test_the_same_command_everywhere_and_a_chief_that_is_killed_goes_on(data, tmp_path):
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
    ports = [f"127.0.0.1:{port}" for port in free_ports(3)]
    cluster = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    with ExitStack() as stack:
        servers = [role(stack, file, cluster, job) for job in ("worker", "ps")]
        chief = role(stack, file, cluster, "chief")
        deadline = time.monotonic() + 120
        while len(logged(run, "checkpoint")) < 3:
            assert chief.poll() is None, chief.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        chief.send_signal(signal.SIGKILL)
        chief.wait()

        again = role(stack, file, cluster, "chief", "--resume")
        out, _ = again.communicate(timeout=180)
        assert again.returncode == 0, out
        assert all(server.poll() is None for server in servers)
        for server in servers:
            server.send_signal(signal.SIGTERM)
        assert [server.wait(20) for server in servers] == [0, 0]

    epochs = logged(run, "epoch")
    assert [line["epoch"] for line in epochs] == [0, 1, 2, 3]
    assert {line["splits"] for line in epochs} == {19}
    summary = json.loads((run / "run.json").read_text())
    assert summary["training"]["examples"] == 4 * 2400
    assert summary["metrics"]["liked/auc"] > 0.7
    assert (run / "bundle" / "manifest.json").is_file()

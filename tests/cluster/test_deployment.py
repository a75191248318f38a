"""The files under `deploy` describe clusters that the program understands; checked without a network."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from easyrec.cli.main import COMMANDS
from easyrec.cli.train import train
from easyrec.training.cluster.roles import parse_tf_config

DEPLOY = Path(__file__).parents[2] / "deploy"
TRAINING = DEPLOY / "kubernetes" / "training"
STRINGS = {"type": "array", "items": {"type": "string"}}
COMPOSE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "build": {
                        "type": "object",
                        "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    "image": {"type": "string"},
                    "init": {"type": "boolean"},
                    "command": STRINGS,
                    "volumes": STRINGS,
                    "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
                    "healthcheck": {
                        "type": "object",
                        "properties": {"disable": {"type": "boolean"}},
                        "additionalProperties": False,
                    },
                    "cap_drop": STRINGS,
                    "security_opt": STRINGS,
                    "depends_on": STRINGS,
                    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "required": ["image", "command", "environment"],
                "additionalProperties": False,
            },
        },
    },
    "patternProperties": {"^x-": {}},
    "required": ["services"],
    "additionalProperties": False,
}
"""As much of the Compose Specification as the file needs; what is not in it is a slip."""
JOBS = {"Chief": "chief", "Worker": "worker", "PS": "ps"}


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((TRAINING / "cluster.yaml").read_text()))


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in documents() if one["kind"] == kind}


def job() -> dict[str, Any]:
    return yaml.safe_load((TRAINING / "tfjob.yaml").read_text())


def pods() -> list[dict[str, Any]]:
    """The pods of the TFJob, whose own schema is the operator's, as pods that Kubernetes knows."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name.lower()},
            "spec": replica["template"]["spec"],
        }
        for name, replica in job()["spec"]["tfReplicaSpecs"].items()
    ]


def test_kubernetes_accepts_every_object():
    validate = pytest.importorskip("kubernetes_validate")
    for document in [*documents(), *pods()]:
        validate.validate(document, "1.30", strict=True)


def test_each_address_is_that_of_a_pod_behind_a_service():
    cluster = json.loads(of_kind("ConfigMap")["easyrec-cluster"]["data"]["cluster"])
    services, sets = of_kind("Service"), of_kind("StatefulSet")
    for name in ("worker", "ps"):
        found = sets[f"easyrec-{name}"]["spec"]
        service = services[found["serviceName"]]["spec"]
        assert service["clusterIP"] == "None"  # each pod has an address of its own
        assert service["selector"] == found["template"]["metadata"]["labels"]
        port = service["ports"][0]["port"]
        expected = [
            f"easyrec-{name}-{index}.{found['serviceName']}:{port}" for index in range(found["replicas"])
        ]
        assert cluster[name] == expected
    chief = of_kind("Job")["easyrec-chief"]["spec"]["template"]
    assert services["easyrec-chief"]["spec"]["selector"] == chief["metadata"]["labels"]


@pytest.mark.parametrize(
    ("role", "host", "task", "resumed"),
    [
        ("worker", "easyrec-worker-3", ("worker", 3), False),
        ("ps", "easyrec-ps-1", ("ps", 1), False),
        ("chief", "easyrec-chief-x7k2p", ("chief", 0), False),
        ("chief", "easyrec-chief-9", ("chief", 0), True),
    ],
)
def test_the_start_script_gives_each_pod_its_role(role, host, task, resumed, tmp_path):
    """The script of the ConfigMap, run with a stand-in for the program that prints what it was given."""
    data = of_kind("ConfigMap")["easyrec-cluster"]["data"]
    (tmp_path / "cluster").write_text(data["cluster"])
    run = tmp_path / "shared" / "runs" / "pipeline"
    run.mkdir(parents=True)
    if resumed:
        (run / "config.yaml").write_text("")
    program = tmp_path / "easyrec"
    program.write_text('#!/bin/bash\necho "$TF_CONFIG" | tr -d "\\n"\necho\necho "$@"\n')
    program.chmod(0o755)
    script = data["start.sh"].replace("/cluster/", f"{tmp_path}/").replace("/shared/", f"{tmp_path}/shared/")
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "ROLE": role, "HOSTNAME": host},
        capture_output=True,
        text=True,
        check=True,
    )
    described, arguments = done.stdout.strip().split("\n")
    found = parse_tf_config(described).task
    assert (found.job, found.index) == task
    assert arguments.startswith("train ")
    assert ("--resume" in arguments) == resumed


def test_the_tfjob_has_the_roles_and_names_that_its_operator_looks_for():
    spec = job()["spec"]
    assert (job()["apiVersion"], job()["kind"]) == ("kubeflow.org/v1", "TFJob")
    assert spec["tfReplicaSpecs"].keys() == JOBS.keys()
    for replica in spec["tfReplicaSpecs"].values():
        assert replica["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        [container] = replica["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow"
        assert container["ports"][0]["name"] == "tfjob-port"
        assert container["command"][:2] == ["easyrec", "train"]


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose" / "training.yaml").read_text())


def test_compose_knows_every_option():
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(compose(), COMPOSE)
    for wrong in ({"restart": "on-failur"}, {"helthcheck": {}}, {"command": 3}):
        broken = compose()
        broken["services"]["chief"] |= wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, COMPOSE)


def test_whoever_writes_to_the_volume_is_the_user_of_the_image():
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    written = {"runAsUser": int(user[1]), "runAsGroup": int(user[2]), "fsGroup": int(user[2])}
    specs = [one["spec"]["template"]["spec"] for one in documents() if one["kind"] in ("StatefulSet", "Job")]
    specs += [pod["spec"] for pod in pods()]
    assert len(specs) == 6
    for spec in specs:
        assert spec["securityContext"] == {"runAsNonRoot": True, **written}
    assert f"chown -R {user[1]}:{user[2]} shared" in (DEPLOY / "compose" / "training.yaml").read_text()


def test_containers_are_started_again_and_are_not_asked_what_only_a_service_answers():
    for service in compose()["services"].values():
        assert service["restart"] == "on-failure"
        assert service["healthcheck"] == {"disable": True}
    # Would end all of them as soon as one has to be started again.
    assert "--abort-on-container-exit" not in (DEPLOY / "compose" / "training.yaml").read_text()


@pytest.mark.parametrize("file", ["compose/training.yaml", "kubernetes/training/tfjob.yaml"])
def test_commands_have_options_that_the_program_has(file):
    application = typer.Typer()
    application.command()(train)
    known = {option for param in typer.main.get_command(application).params for option in param.opts}
    text = (DEPLOY / file).read_text()
    given = set(re.findall(r"--[a-z-]+", " ".join(re.findall(r"(?m)^ *command: \[(.*)\]", text))))
    assert {"--run", "--resume"} == given <= known


def test_compose_gives_each_container_its_role():
    services = compose()["services"]
    assert "train" in {command.name for command in COMMANDS}
    clusters = set()
    for name, service in services.items():
        cluster = parse_tf_config(service["environment"]["TF_CONFIG"])
        assert cluster.task.address.split(":")[0] == name
        assert service["command"][0] == "train"  # the image's entry point is the program
        clusters.add(json.dumps(cluster.addresses))
    assert len(clusters) == 1
    [addresses] = map(json.loads, clusters)
    assert {address.split(":")[0] for found in addresses.values() for address in found} == services.keys()

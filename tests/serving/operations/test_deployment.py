"""The files under `deploy` fit the service: settings, commands, ports, probes, names; checked without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute
from typer.testing import CliRunner

from easyrec.cli.main import application
from serving.security.settings import check_address
from serving.settings import PREFIX, load_settings
from tests.serving.application import ROOT, make_app

DEPLOY = ROOT / "deploy"
SERVING = DEPLOY / "kubernetes" / "serving"
IMAGE_USER = 10001
MADE_BY_HAND = {("Secret", "easyrec-keys")}


def documents() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((SERVING / "kustomization.yaml").read_text())
    return [
        document
        for name in kustomization["resources"]
        for document in yaml.safe_load_all((SERVING / name).read_text())
    ]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [one for one in documents() if one["kind"] in kinds]


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [one for one in of_kind(kind) if one["metadata"]["name"] == name]
    return found


def within(value: Any, key: str) -> Iterator[Any]:
    """Every value of a key, however deep."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from within(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner, key)


def stages() -> list[str]:
    """The stages of the Dockerfile, continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return re.split(r"^FROM ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]


def image_environment() -> dict[str, str]:
    [line] = re.findall(r"^ENV (.*EASYREC.*)$", stages()[-1], flags=re.MULTILINE)
    pairs = dict(part.split("=", 1) for part in line.split())
    return {name: value for name, value in pairs.items() if name.startswith(PREFIX)}


@pytest.fixture(scope="module")
def kubernetes_validate():
    return pytest.importorskip("kubernetes_validate", reason="it comes with the extra `dev`")


def test_the_manifests_are_what_kubernetes_knows(kubernetes_validate):
    found = documents()
    assert len(found) > 8
    for document in found:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_every_file_is_listed():
    kustomization = yaml.safe_load((SERVING / "kustomization.yaml").read_text())
    files = {path.name for path in SERVING.glob("*.yaml")}
    assert files == {*kustomization["resources"], "kustomization.yaml"}


def test_the_settings_of_the_cluster_are_settings_of_the_service(tmp_path):
    text = named("ConfigMap", "easyrec-settings")["data"]["serve.yaml"]
    (tmp_path / "serve.yaml").write_text(text)
    settings = load_settings(tmp_path / "serve.yaml", environment=image_environment())
    check_address(settings.host, settings.security)
    redis = named("Service", "easyrec-redis")
    assert settings.store == f"redis://{redis['metadata']['name']}:{redis['spec']['ports'][0]['port']}/0"
    mounts = {mount["mountPath"]: mount["name"] for mount in pod("easyrec")["containers"][0]["volumeMounts"]}
    assert str(settings.data) in mounts
    for path in (settings.security.keys, *settings.models):
        assert any(path.is_relative_to(mount) for mount in mounts), path
    grace = pod("easyrec")["terminationGracePeriodSeconds"]
    assert grace > settings.operations.grace_seconds + 5


def pod(name: str) -> dict[str, Any]:
    return named("StatefulSet", name)["spec"]["template"]["spec"]


def test_the_command_of_the_pod_is_one_of_the_command_line():
    arguments = pod("easyrec")["containers"][0]["args"]
    [entrypoint] = re.findall(r'^ENTRYPOINT \["(.*)"\]$', stages()[-1], flags=re.MULTILINE)
    assert entrypoint == "easyrec"
    options = {argument for argument in arguments[1:] if argument.startswith("--")}
    shown = CliRunner().invoke(application(), [arguments[0], "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert options
    assert all(option in shown.stdout for option in options)


def test_probes_ask_for_paths_that_there_are(tmp_path, monkeypatch):
    app = make_app(tmp_path, monkeypatch)
    known = set(app.openapi()["paths"])
    asked = {probe["path"] for document in documents() for probe in within(document, "httpGet")}
    asked |= set(within(documents(), "prometheus.io/path"))
    asked |= set(re.findall(r"http://127\.0\.0\.1:8000(/[\w/]+)", (DEPLOY / "Dockerfile").read_text()))
    assert asked >= {"/health/live", "/health/ready", "/metrics"}
    assert asked <= known | {route.path for route in app.routes if isinstance(route, APIRoute)}


def test_ports_agree():
    port = int(image_environment()["EASYREC_PORT"])
    assert re.search(rf"^EXPOSE {port}$", stages()[-1], flags=re.MULTILINE)
    assert pod("easyrec")["containers"][0]["ports"] == [{"name": "http", "containerPort": port}]
    assert [one["targetPort"] for one in named("Service", "easyrec")["spec"]["ports"]] == ["http"]
    assert set(within(documents(), "prometheus.io/port")) == {str(port)}
    assert compose()["services"]["serve"]["ports"] == [f"{port}:{port}"]


def test_what_selects_finds_and_what_is_named_is_there():
    labels = [tuple(one["spec"]["template"]["metadata"]["labels"].items()) for one in of_kind("StatefulSet")]
    for document in documents():
        spec = document.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        wanted = selector.get("matchLabels", selector if document["kind"] == "Service" else {})
        if wanted:
            assert any(set(wanted.items()) <= set(one) for one in labels), document["metadata"]["name"]
    there = {(one["kind"], one["metadata"]["name"]) for one in documents()} | MADE_BY_HAND
    for kind, key, name in [
        ("ConfigMap", "configMap", "name"),
        ("Secret", "secret", "secretName"),
        ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
    ]:
        for reference in within(documents(), key):
            assert (kind, reference[name]) in there
    for one in of_kind("StatefulSet"):
        assert ("Service", one["spec"]["serviceName"]) in there
        template = one["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in template.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        for container in template["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    target = named("HorizontalPodAutoscaler", "easyrec")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) in there


def test_nothing_runs_with_more_rights_than_it_needs():
    for one in of_kind("StatefulSet"):
        template = one["spec"]["template"]["spec"]
        assert template["securityContext"]["runAsNonRoot"] is True
        assert template["automountServiceAccountToken"] is False
        for container in template["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert pod("easyrec")["securityContext"]["runAsUser"] == IMAGE_USER
    assert re.search(rf"^USER {IMAGE_USER}:", stages()[-1], flags=re.MULTILINE)
    for service in compose()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_no_file_holds_a_key():
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert not re.search(r"er_[A-Za-z0-9_-]{20,}|sha256:[0-9a-f]{64}", path.read_text()), path
    assert not of_kind("Secret")


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose" / "serving.yaml").read_text())


def test_the_settings_of_compose_are_settings_of_the_service():
    environment = dict(compose()["services"]["serve"]["environment"])
    assert environment.pop("EASYREC_MODELS").startswith("${EASYREC_MODELS:?")
    settings = load_settings(
        environment=image_environment() | environment | {"EASYREC_MODELS": "[/models/a]"}
    )
    check_address(settings.host, settings.security)
    assert settings.security.keys == Path("/run/secrets/keys")
    assert settings.store == "redis://redis:6379/0"
    grace = compose()["services"]["serve"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > settings.operations.grace_seconds


def test_what_compose_names_is_there():
    found = compose()
    assert found.keys() == {"name", "services", "volumes", "secrets"}
    for service in found["services"].values():
        for volume in service["volumes"]:
            source = re.sub(r"\$\{[^}]*\}", "/somewhere", volume).split(":")[0]
            assert source.startswith("/") or source in found["volumes"]
        assert set(service.get("secrets", [])) <= found["secrets"].keys()
        for other, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy"
            assert "healthcheck" in found["services"][other]
    build = found["services"]["serve"]["build"]
    context = (DEPLOY / "compose" / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()


def test_the_image_is_made_of_files_that_there_are_and_that_are_sent():
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    build = stages()[0]
    copied = [
        source
        for line in re.findall(r"^COPY (.*)$", build, flags=re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert {"easyrec", "evaluation", "serving", "feature_configs", "requirements.lock"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source}" in ignore
    [extras] = re.findall(r'"\.\[(.*)\]"', build)
    project = (ROOT / "pyproject.toml").read_text()
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, flags=re.MULTILINE), extra


def test_the_service_needs_nothing_of_what_the_small_image_leaves_out():
    [removed] = re.findall(r"pip uninstall --yes (.*?);", stages()[0])
    modules = {"grpcio": "grpc", "libclang": "clang"}
    left_out = {modules.get(name, name.replace("-", "_")) for name in removed.split()}
    assert "tensorflow" in left_out
    importing = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(left_out)!r}))\n"  # None: importing it is an ImportError
        "import easyrec.cli.main, serving.launch, serving.models.served"
    )
    subprocess.run([sys.executable, "-c", importing], cwd=ROOT, check=True)


def test_the_lock_without_hashes_is_a_file_of_constraints():
    [command] = re.findall(r"sed --regexp-extended '(.*?)'", stages()[0])
    done = subprocess.run(
        ["sed", "--regexp-extended", command, str(ROOT / "requirements.lock")],
        capture_output=True,
        text=True,
        check=True,
    )
    pinned = [line for line in done.stdout.splitlines() if line and not line.lstrip().startswith("#")]
    assert len(pinned) > 50
    assert all(re.match(r"[A-Za-z0-9._\[\]-]+==\S+( ; .+)?$", line) for line in pinned)

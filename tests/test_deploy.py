"""The files of ``deploy/`` for containers and services: their form, and what their settings mean."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

import minikafka
from minikafka.base.config.property_files import read_properties
from minikafka.cli.container import DATA_DIR, container_properties
from minikafka.server.config.environment import read_environment
from minikafka.server.config.properties import BrokerConfig

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
COMPOSE = ("compose.yaml", "compose.cluster.yaml")
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UID = 10001


def documents(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path.read_text("utf-8")))


def brokers_of(compose: str) -> dict[str, Any]:
    (found,) = documents(DEPLOY / compose)
    return {name: service for name, service in found["services"].items() if "broker" in name}


def config_of(variables: dict[str, str]) -> BrokerConfig:
    """Return the configuration that a container would use. All its variables have a meaning."""
    found = read_environment(variables)
    assert found.ignored == ()
    properties = container_properties(found.properties, {}, DATA_DIR)
    config = BrokerConfig.from_properties({"zookeeper.connect": "127.0.0.1:2181", **properties})
    assert config.unknown == ()
    return config


def kubernetes_objects() -> Iterator[dict[str, Any]]:
    for path in KUBERNETES:
        yield from documents(path)


def kubernetes_object(kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        item for item in kubernetes_objects() if (item["kind"], item["metadata"]["name"]) == (kind, name)
    )
    return found


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile with their arguments, in one line each."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line)
    ]


def stage(name: str) -> dict[str, list[str]]:
    """Return the arguments of each instruction of a stage and of those that it is made from."""
    stages: dict[str, dict[str, list[str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            base, _, current = rest.partition(" AS ")
            found = stages[current] = {key: list(values) for key, values in stages.get(base, {}).items()}
        elif stages:
            found.setdefault(word, []).append(rest)
    return stages[name]


@pytest.mark.parametrize("name", ["broker", "bundled"])
def test_image_runs_without_root_and_without_a_shell(name: str) -> None:
    image = stage(name)
    assert image["USER"][-1] == f"{UID}:{UID}"
    assert json.loads(image["ENTRYPOINT"][-1]) == ["minikafka"]
    assert json.loads(image["CMD"][-1]) == ["container"]
    options, _, check = image["HEALTHCHECK"][-1].partition("CMD ")
    assert "--start-period" in options
    python, option, program = json.loads(check)
    assert (python, option) == ("python", "-c")
    assert "http://127.0.0.1:9308/readyz" in program
    compile(program, "HEALTHCHECK", "exec")
    assert json.loads(image["VOLUME"][-1]) == [str(DATA_DIR)]
    assert (image["EXPOSE"], image["STOPSIGNAL"]) == (["9092 9308"], ["SIGTERM"])


def test_images_are_pinned_to_a_tag_or_a_digest() -> None:
    words = instructions()
    arguments = dict(rest.partition("=")[::2] for word, rest in words if word == "ARG")
    stages = {rest.partition(" AS ")[2] for word, rest in words if word == "FROM"}
    bases = {rest.partition(" AS ")[0] for word, rest in words if word == "FROM"} - stages
    assert bases == {"docker.io/library/python:${PYTHON_TAG}${PYTHON_DIGEST}"}
    assert re.fullmatch(r"\d+\.\d+\.\d+-slim-\w+", arguments["PYTHON_TAG"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", arguments["PYSPARK_VERSION"])
    assert arguments["VERSION"] == minikafka.__version__
    services = [service for name in COMPOSE for service in documents(DEPLOY / name)[0]["services"].values()]
    pods = [
        item["spec"]["template"]["spec"] for item in kubernetes_objects() if item["kind"] == "StatefulSet"
    ]
    images = [found["image"] for found in [*services, *(box for pod in pods for box in pod["containers"])]]
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d[\w.]*", image) for image in images), images


def test_image_is_made_of_files_that_exist_and_are_in_its_context() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text("utf-8").splitlines()
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    for name in (name for names in copied for name in names):
        assert (DEPLOY.parent / name).exists()
        assert f"!{name}" in ignored
    assert not [word for word, _ in instructions() if word == "ADD"]


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_file_follows_the_specification(name: str) -> None:
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    (found,) = documents(DEPLOY / name)
    jsonschema.validate(found, json.loads(schema.read_text("utf-8")))


@pytest.mark.parametrize("name", COMPOSE)
def test_composed_brokers_stop_in_time_and_write_to_one_volume(name: str) -> None:
    for service in brokers_of(name).values():
        (volume,) = service["volumes"]
        assert volume.partition(":")[2] == str(DATA_DIR)
        assert service["read_only"]
        assert int(service["stop_grace_period"].removesuffix("s")) >= 30
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", COMPOSE)
def test_composed_brokers_are_reached_from_inside_and_from_the_host(name: str) -> None:
    ids = set()
    for service_name, service in brokers_of(name).items():
        config = config_of(service["environment"])
        inside, outside = config.listeners
        assert (inside.advertised_host, inside.advertised_port, inside.port) == (service_name, 9092, 9092)
        assert outside.advertised_host == "localhost"
        assert f"127.0.0.1:{outside.advertised_port}:{outside.port}" in service["ports"]
        assert config.inter_broker.listener == inside.name
        ids.add(config.broker_id)
    assert len(ids) == len(brokers_of(name))


def test_pods_run_without_root_on_a_read_only_disk() -> None:
    pod = kubernetes_object("StatefulSet", "minikafka")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == UID
    assert broker["securityContext"]["readOnlyRootFilesystem"]
    assert not broker["securityContext"]["allowPrivilegeEscalation"]
    assert broker["volumeMounts"][0]["mountPath"] == str(DATA_DIR)
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert broker["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert broker["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_pods_have_the_id_and_the_name_of_their_number() -> None:
    (broker,) = kubernetes_object("StatefulSet", "minikafka")["spec"]["template"]["spec"]["containers"]
    labels = {"metadata.name": "minikafka-2", "metadata.labels['apps.kubernetes.io/pod-index']": "2"}
    variables = {
        item["name"]: item["value"] if "value" in item else labels[item["valueFrom"]["fieldRef"]["fieldPath"]]
        for item in broker["env"]
    }
    variables = {
        name: value.replace("$(POD_NAME)", variables["POD_NAME"]) for name, value in variables.items()
    }
    config = config_of(variables)
    (listener,) = config.listeners
    assert (config.broker_id, listener.advertised_host) == (2, "minikafka-2.minikafka")
    assert (listener.host, listener.port) == ("0.0.0.0", 9092)


def test_services_and_budget_select_the_pods() -> None:
    for name in ("minikafka", "zookeeper"):
        pods = kubernetes_object("StatefulSet", name)["spec"]
        labels = pods["template"]["metadata"]["labels"]
        assert kubernetes_object("Service", name)["spec"]["selector"] == labels
        assert pods["selector"]["matchLabels"] == labels
        assert pods["serviceName"] == name
    budget = kubernetes_object("PodDisruptionBudget", "minikafka")["spec"]
    assert budget["selector"]["matchLabels"] == {"app.kubernetes.io/name": "minikafka"}
    assert budget["maxUnavailable"] == 1


def test_properties_of_the_service_are_valid() -> None:
    config = BrokerConfig.from_properties(read_properties(str(DEPLOY / "server.properties"), "FILE"))
    assert config.unknown == ()
    unit = (DEPLOY / "minikafka.service").read_text("utf-8")
    assert config.log_dirs == ("/var/lib/minikafka",)
    assert "StateDirectory=minikafka\n" in unit
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert shlex.split(command)[1:] == ["broker", "/etc/minikafka/server.properties"]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_unit_is_accepted_by_systemd(tmp_path: Path) -> None:
    unit = (DEPLOY / "minikafka.service").read_text("utf-8")
    path = tmp_path / "minikafka.service"
    path.write_text(unit.replace("/usr/local/minikafka/bin/minikafka", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")

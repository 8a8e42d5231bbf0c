"""The Kubernetes manifests: all that can be checked without a cluster. The charts are in test_charts.py."""

import base64
import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.infra.compose import merged
from tests.infra.schemas.charts import VALUES, at, mlflow
from tests.infra.schemas.kubernetes import FOLDER, SCHEMAS, Tree, check

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


def manifests() -> list[Tree]:
    """Every object of the manifests, as they are applied."""
    names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [tree for name in names for tree in yaml.safe_load_all((FOLDER / name).read_text())]


def deployment(name: str) -> Tree:
    (tree,) = [tree for tree in manifests() if (tree["kind"], tree["metadata"]["name"]) == ("Deployment", name)]
    return tree


def pods() -> Iterator[tuple[str, Tree]]:
    """(name, specification) of each pod, but for those of Prefect's charts."""
    for tree in [*manifests(), mlflow()]:
        if tree["kind"] == "Deployment":
            yield tree["metadata"]["name"], tree["spec"]["template"]["spec"]


each_container = pytest.mark.parametrize(
    ("pod", "container"),
    [
        pytest.param(pod, container, id=f"{name}-{container['name']}")
        for name, pod in pods()
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    ],
)


@needs_kubectl
def test_the_manifests_are_put_together_by_kustomize() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    trees = list(yaml.safe_load_all(done.stdout))
    for tree in trees:
        check(tree)
    assert {tree["kind"] for tree in trees} == {"Deployment", "Namespace", "NetworkPolicy", "Service"}
    assert {tree["metadata"].get("namespace", "zero") for tree in trees} == {"zero"}


# What Kubernetes takes


@pytest.mark.parametrize(
    "tree", [*manifests(), mlflow()], ids=lambda tree: f"{tree['kind']}-{tree['metadata']['name']}"
)
def test_kubernetes_takes_each_object(tree: Tree) -> None:
    check(tree)


def test_the_objects_are_checked_by_the_version_that_the_namespace_asks_for() -> None:
    (namespace,) = [tree for tree in manifests() if tree["kind"] == "Namespace"]
    versions = {value for key, value in namespace["metadata"]["labels"].items() if key.endswith("-version")}
    assert {f"v{path.stem.partition('-')[2]}" for path in SCHEMAS.glob("kubernetes-*.json")} == versions


POD = "spec.template.spec"


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("spec.replica", 1, "'replica' was unexpected"),
        ("spec.replicas", "one", "'one' is not of type"),
        (f"{POD}.securityContext.runAsNonroot", True, "'runAsNonroot' was unexpected"),
        (f"{POD}.terminationGracePeriodSeconds", "5m", "'5m' is not of type"),
        (f"{POD}.containers.0.envs", [], "'envs' was unexpected"),
        (f"{POD}.containers.0.env", {"HOME": "/tmp"}, "is not of type 'array'"),
        (f"{POD}.containers.0.livenessProbe.httpGet.ports", 80, "'ports' was unexpected"),
        (f"{POD}.containers.0.volumeMounts.0", {"mountPath": "/tmp"}, "'name' is a required property"),
        (f"{POD}.volumes.0.secret.secret", "zero-mlflow", "'secret' was unexpected"),
    ],
)
def test_kubernetes_does_not_take_a_wrong_field(place: str, value: Any, complaint: str) -> None:
    scheduler = copy.deepcopy(deployment("scheduler"))
    *path, last = [int(word) if word.isdigit() else word for word in place.split(".")]
    node: Any = scheduler
    for word in path:
        node = node[word]
    node[last] = value
    with pytest.raises(jsonschema.ValidationError, match=re.escape(complaint)):
        check(scheduler)


@each_container
def test_a_container_asks_for_what_it_needs_and_has_a_limit(pod: Tree, container: Tree) -> None:
    for bound in ("requests", "limits"):
        assert {"cpu", "memory"} <= container["resources"][bound].keys()


@each_container
def test_a_container_has_no_rights(pod: Tree, container: Tree) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


@each_container
def test_what_a_container_mounts_is_there(pod: Tree, container: Tree) -> None:
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}


@each_container
def test_no_secret_is_in_the_environment_of_a_pod(pod: Tree, container: Tree) -> None:
    # One without a value has it from a secret, by reference.
    entries = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    folders = [path for mount in container["volumeMounts"] if (path := mount["mountPath"]).startswith("/run/secrets/")]
    for name, value in entries.items():
        if re.search(r"SECRET|PASSWORD|AUTH_CONFIG|CREDENTIALS|_KEY$|_CERT$", name):
            assert str(value).startswith(tuple(folders)), name


def test_images_are_pinned() -> None:
    images = [
        container["image"] for _, pod in pods() for container in [*pod.get("initContainers", []), *pod["containers"]]
    ]
    for path in VALUES:
        for image in at(yaml.safe_load(path.read_text()), "image"):
            if isinstance(image, dict):
                images.append(f"{image['repository']}:{image.get('prefectTag') or image['tag']}")
    for image in images:
        assert re.search(r":[\w.-]+$", image), image
        assert "latest" not in image, image


# Dask


def container_of(name: str) -> Tree:
    (container,) = deployment(name)["spec"]["template"]["spec"]["containers"]
    tree: Tree = container
    return tree


def test_a_worker_has_one_gpu_and_says_so() -> None:
    container = container_of("worker")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 1
    assert "--resources=GPU=1" in container["args"]
    assert "nvidia.com/gpu" not in container_of("scheduler")["resources"]["limits"]


@pytest.mark.parametrize(("name", "service"), [("scheduler", "scheduler"), ("worker", "gpu-0")])
def test_dask_has_the_settings_of_the_containers(name: str, service: str) -> None:
    """Beside ports, names, and the folders of the secrets."""
    compose, container = merged("compose.gpu.yaml")["services"][service], container_of(name)
    own = {"--name", "--worker-port", "--nanny-port", "--dashboard-address"}
    ours, theirs = (
        [word for word in words if word.partition("=")[0] not in own]
        for words in (container["args"], compose["command"])
    )
    assert ours == theirs
    settings = {entry["name"]: entry.get("value") for entry in container["env"]}
    given = {key for key in compose["environment"] if key != "AWS_EC2_METADATA_DISABLED"}  # the image has it
    assert settings.keys() == given
    for key in given - {"ZERO_WORKER", "SECRET_PREFECT_API_AUTH_STRING"}:
        assert Path(settings[key]).name == Path(compose["environment"][key]).name.removeprefix("dask-"), key


def test_the_ports_of_a_pod_are_those_that_its_command_opens() -> None:
    for name in ("scheduler", "worker"):
        container = container_of(name)
        opened = set(re.findall(r"(?:port=|:)(\d+)$", "\n".join(container["args"][3:]), re.M)) - {"8786"}
        opened |= {"8786"} if name == "scheduler" else set()
        assert {str(port["containerPort"]) for port in container["ports"]} == opened


def test_the_service_is_that_of_the_scheduler() -> None:
    (service,) = [tree["spec"] for tree in manifests() if tree["kind"] == "Service"]
    labels = deployment("scheduler")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(8786, "dask")]
    assert "tls://scheduler:8786" in container_of("worker")["args"]


def test_a_worker_can_write_where_a_training_works() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of("worker")["volumeMounts"]}
    assert mounts["trainings"] == "/srv/zero/.zero/trainings"


# The network


def policies() -> dict[str, Tree]:
    return {tree["metadata"]["name"]: tree["spec"] for tree in manifests() if tree["kind"] == "NetworkPolicy"}


def selects(policy: Tree, labels: dict[str, str]) -> bool:
    wanted = policy["podSelector"].get("matchLabels", {})
    return bool(wanted.items() <= labels.items())


def reaches(source: dict[str, str], target: dict[str, str], port: int) -> bool:
    """True where both sides allow a connection between pods of the namespace with these labels."""

    def side(labels: dict[str, str], other: dict[str, str], kind: str, key: str, peer: str) -> bool:
        mine = [policy for policy in policies().values() if selects(policy, labels) and kind in policy["policyTypes"]]
        rules = [rule for policy in mine for rule in policy.get(key, [])]
        return not mine or any(
            any(entry["port"] == port for entry in rule["ports"])
            and (peer not in rule or any("podSelector" in entry and selects(entry, other) for entry in rule[peer]))
            for rule in rules
        )

    return side(source, target, "Egress", "egress", "to") and side(target, source, "Ingress", "ingress", "from")


WORKER, SCHEDULER = (deployment(name)["spec"]["template"]["metadata"]["labels"] for name in ("worker", "scheduler"))
PREFECT, MLFLOW = {"app.kubernetes.io/name": "prefect-server"}, {"app.kubernetes.io/name": "mlflow"}
POSTGRES, S3 = {"zero/role": "postgres"}, {"zero/role": "s3"}


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        (WORKER, PREFECT, 4200, True),
        (WORKER, S3, 8333, True),
        (WORKER, POSTGRES, 5432, False),
        (WORKER, MLFLOW, 5000, False),
        (WORKER, S3, 8888, False),
        (WORKER, SCHEDULER, 8786, True),
        (WORKER, SCHEDULER, 8787, False),
        (SCHEDULER, WORKER, 8789, True),
        (SCHEDULER, WORKER, 8790, True),
        (SCHEDULER, PREFECT, 4200, False),
        (WORKER, WORKER, 8789, False),
        (PREFECT, SCHEDULER, 8786, False),
        (PREFECT, POSTGRES, 5432, True),
        (PREFECT, S3, 8333, False),
        (MLFLOW, POSTGRES, 5432, True),
        (MLFLOW, S3, 8333, True),
        ({"app": "a stranger"}, PREFECT, 4200, False),
    ],
)
def test_who_reaches_whom(source: dict[str, str], target: dict[str, str], port: int, allowed: bool) -> None:
    assert reaches(source, target, port) is allowed


# The secrets


@needs_kubectl
def test_the_secrets_of_the_namespace_are_those_that_the_pods_name(
    secrets: Path, certificates: Path, tmp_path: Path
) -> None:
    script = str(FOLDER / "secrets")
    shutil.copytree(secrets, tmp_path, dirs_exist_ok=True)
    shutil.copytree(certificates, tmp_path / "dask")
    done = subprocess.run([script, str(tmp_path)], capture_output=True, text=True, check=True)
    made = {tree["metadata"]["name"]: tree["data"] for tree in yaml.safe_load_all(done.stdout) if tree}
    named = {value["secretName"] for _, pod in pods() for value in at(pod, "secret")}
    for path in VALUES:
        tree = yaml.safe_load(path.read_text())
        named |= {*at(tree, "existingSecret"), *(key["name"] for key in at(tree, "secretKeyRef"))}
        named |= {body["name"] for body in [tree.get("secret", {})] if body}
    assert set(made) == named
    assert base64.b64decode(made["zero-prefect-auth"]["auth-string"]) == (secrets / "prefect-auth").read_bytes()
    assert b"\n" not in base64.b64decode(made["zero-prefect-auth"]["auth-string"])  # it becomes an HTTP header
    password = (secrets / "prefect-database-password").read_text()
    url = f"postgresql+asyncpg://prefect:{password}@postgres:5432/prefect"
    assert base64.b64decode(made["zero-prefect-database"]["connection-string"]).decode() == url
    for _, pod in pods():
        told = [body["env"] for body in [*pod.get("initContainers", []), *pod["containers"]]]
        files = set(re.findall(r"/run/secrets/\w+/([\w.-]+)", json.dumps(told)))
        given: set[str] = set()
        for value in at(pod, "secret"):
            items = value.get("items", [{"key": key, "path": key} for key in made[value["secretName"]]])
            assert {item["key"] for item in items} <= set(made[value["secretName"]])
            given |= {item["path"] for item in items}
        assert all(key["key"] in made[key["name"]] for key in at(pod, "secretKeyRef"))
        assert given == files

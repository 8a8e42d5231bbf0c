"""The Kubernetes manifests and the values for the Helm charts: all that can be checked without a cluster or helm."""

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from infra.local import VACUUM
from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.compose import merged
from tests.infra.schemas.charts import VALUES, at, chart_of, mlflow, schema_of
from tests.infra.schemas.kubernetes import FOLDER, Tree, check, validate

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
each_values = pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name)


def values(name: str) -> Tree:
    """Our values for a chart."""
    tree: Tree = yaml.safe_load((FOLDER / f"{name}-values.yaml").read_text())
    return tree


def manifests() -> list[Tree]:
    """Every object of the manifests, as they are applied."""
    names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [tree for name in names for tree in yaml.safe_load_all((FOLDER / name).read_text())]


def deployment(name: str) -> Tree:
    (tree,) = [tree for tree in manifests() if (tree["kind"], tree["metadata"]["name"]) == ("Deployment", name)]
    return tree


def container_of(name: str) -> Tree:
    (container,) = deployment(name)["spec"]["template"]["spec"]["containers"]
    tree: Tree = container
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


# What Kubernetes and the charts take


@needs_kubectl
def test_the_manifests_are_put_together_by_kustomize() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    trees = list(yaml.safe_load_all(done.stdout))
    assert {tree["kind"] for tree in trees} == {"Deployment", "Namespace", "NetworkPolicy", "Service"}
    assert {tree["metadata"].get("namespace", "zero") for tree in trees} == {"zero"}


def test_kubernetes_takes_each_object() -> None:
    for tree in [*manifests(), mlflow()]:
        check(tree)
    scheduler = deployment("scheduler")
    scheduler["spec"]["template"]["spec"]["containers"][0]["envs"] = []
    with pytest.raises(jsonschema.ValidationError, match="'envs' was unexpected"):
        check(scheduler)


@each_values
def test_a_chart_takes_its_values(path: Path) -> None:
    schema = schema_of(chart_of(path)["values"])
    validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError, match="'replicas' was unexpected"):
        validate({"replicas": 1}, schema)


def test_the_docs_install_the_charts_whose_values_are_known() -> None:
    known = {chart_of(path)["version"] for path in VALUES}
    told = [path.read_text() for path in (*VALUES, SOURCE_DIR / "docs/kubernetes.md")]
    assert {version for text in told for version in re.findall(r"--version (\S+)", text)} == known


def test_the_charts_run_the_versions_of_the_pinned_set() -> None:
    pins = dict(line.split("==") for line in (SOURCE_DIR / "constraints.txt").read_text().splitlines() if "==" in line)
    tags = [tag for path in VALUES for tag in at(yaml.safe_load(path.read_text()), "prefectTag")]
    assert [tag.split("-")[0] for tag in tags] == [pins["prefect"]]
    pod = mlflow()["spec"]["template"]["spec"]
    tags = [body["image"].rpartition(":")[2] for body in [*pod["initContainers"], *pod["containers"]]]
    assert tags == [pins["mlflow"]] * 2
    for _, pod in pods():
        for body in pod["containers"]:
            assert re.search(r":[\w.-]+$", body["image"]) and "latest" not in body["image"]


PARSED = """
import json, sys
from mlflow.cli import server
given = server.make_context("server", sys.argv[1:]).params
print(json.dumps([given[name] for name in ("app_name", "host", "port", "workers", "serve_artifacts")]))
"""


def test_the_server_of_mlflows_chart_knows_its_options() -> None:
    program, command, *options = mlflow()["spec"]["template"]["spec"]["containers"][0]["command"]
    assert (program, command) == ("mlflow", "server")
    service = "tcp://10.96.0.1:5000"  # as Kubernetes sets it for the Service `mlflow`
    done = run([sys.executable, "-c", PARSED, *options], SOURCE_DIR, MLFLOW_PORT=service)
    assert json.loads(done.stdout.splitlines()[-1]) == ["basic-auth", "0.0.0.0", 5000, "1", True]


# Rights, limits and secrets


@each_container
def test_a_container_has_limits_few_rights_and_no_secret_in_its_environment(pod: Tree, container: Tree) -> None:
    for bound in ("requests", "limits"):
        assert {"cpu", "memory"} <= container["resources"][bound].keys()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    # A variable without a value has it from a secret, by reference.
    entries = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    folders = [path for mount in container["volumeMounts"] if (path := mount["mountPath"]).startswith("/run/secrets/")]
    for name, value in entries.items():
        if re.search(r"SECRET|PASSWORD|AUTH_CONFIG|CREDENTIALS|_KEY$|_CERT$", name):
            assert str(value).startswith(tuple(folders)), name


@each_values
def test_chart_values_give_limits_few_rights_and_no_password(path: Path) -> None:
    tree = yaml.safe_load(path.read_text())
    for resources in at(tree, "resources"):
        assert {"cpu", "memory"} <= resources["requests"].keys() == resources["limits"].keys()
    for rights in at(tree, "containerSecurityContext"):
        assert rights["runAsNonRoot"] and rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
    assert not re.search(r"(?i)(password|authString|connection-string)\s*:", path.read_text())
    assert all(auth == {"enabled": True, "existingSecret": "zero-prefect-auth"} for auth in at(tree, "basicAuth"))


@needs_kubectl
def test_the_secrets_of_the_namespace_are_those_that_the_pods_name(secrets: Path) -> None:
    script = str(FOLDER / "secrets")
    done = subprocess.run([script, str(secrets)], capture_output=True, text=True, check=True)
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


# Prefect's server


def test_the_server_makes_the_tables_of_prefect() -> None:
    """The chart has a job for that only if background services run apart."""
    tree = values("prefect-server")
    assert tree["backgroundServices"] == {"runAsSeparateDeployment": False}
    names = {entry["name"] for entry in tree["global"]["prefect"]["env"]}
    assert "PREFECT_SERVER_DATABASE_MIGRATE_ON_START" not in names


def test_prefect_deletes_old_runs_as_that_of_one_machine_does() -> None:
    given = {entry["name"]: entry["value"] for entry in values("prefect-server")["global"]["prefect"]["env"]}
    assert given.items() >= VACUUM.items()


# Dask


def test_a_worker_has_one_gpu_and_a_folder_for_trainings() -> None:
    container = container_of("worker")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "--resources=GPU=1" in container["args"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["trainings"] == "/srv/zero/.zero/trainings"


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
        assert Path(settings[key]).name == Path(compose["environment"][key]).name, key


def test_the_service_is_that_of_the_scheduler() -> None:
    (service,) = [tree["spec"] for tree in manifests() if tree["kind"] == "Service"]
    labels = deployment("scheduler")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(8786, "dask")]
    assert "tls://scheduler:8786" in container_of("worker")["args"]


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

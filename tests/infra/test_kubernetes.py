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

from infra import pools
from tests.infra.schemas.charts import VALUES, at, mlflow
from tests.infra.schemas.kubernetes import FOLDER, SCHEMAS, Tree, check

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


def manifests() -> list[Tree]:
    """Every object of the manifests, as they are applied."""
    names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [tree for name in names for tree in yaml.safe_load_all((FOLDER / name).read_text())]


def template() -> Tree:
    tree: Tree = json.loads((FOLDER / "gpu-job-template.json").read_text())
    return tree


def values_of_run(**given: Any) -> Tree:
    """The defaults of the template's variables, what the worker puts in, and what a deployment gives."""
    variables = template()["variables"]["properties"].items()
    defaults = {name: body["default"] for name, body in variables if "default" in body}
    return {"name": "selfplay-0", "command": "python -m prefect.engine", "labels": {}, **defaults, **given}


def job(**given: Any) -> Tree:
    """The job that Prefect's worker makes of the template."""
    values = values_of_run(**given)

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: fill(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [fill(inner) for inner in node]
        if isinstance(node, str) and (whole := re.fullmatch(r"\{\{ (\w+) \}\}", node)):
            return values[whole[1]]
        return re.sub(r"\{\{ (\w+) \}\}", lambda found: values[found[1]], node) if isinstance(node, str) else node

    tree: Tree = fill(template()["job_configuration"]["job_manifest"])
    return tree


def pods() -> Iterator[tuple[str, Tree]]:
    """(name, specification) of each pod, but for those of Prefect's charts."""
    for tree in [*manifests(), job(), mlflow()]:
        if tree["kind"] in ("Deployment", "Job"):
            yield tree["metadata"].get("name", "gpu-job"), tree["spec"]["template"]["spec"]


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
    assert {tree["kind"] for tree in trees} == {"ConfigMap", "Deployment", "Namespace", "NetworkPolicy"}
    assert {tree["metadata"].get("namespace", "zero") for tree in trees} == {"zero"}
    (chart_reads,) = [tree for tree in trees if tree["metadata"]["name"] == "zero-gpu-job-template"]
    assert json.loads(chart_reads["data"]["baseJobTemplate.json"]) == template()


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
    (learner,) = [copy.deepcopy(tree) for tree in manifests() if tree["metadata"]["name"] == "learner"]
    *path, last = [int(word) if word.isdigit() else word for word in place.split(".")]
    node: Any = learner
    for word in path:
        node = node[word]
    node[last] = value
    with pytest.raises(jsonschema.ValidationError, match=re.escape(complaint)):
        check(learner)


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
    entries = container["env"]
    if isinstance(entries, list):  # one without a value has it from a secret, by reference
        entries = {entry["name"]: entry["value"] for entry in entries if "value" in entry}
    folders = [path for mount in container["volumeMounts"] if (path := mount["mountPath"]).startswith("/run/secrets/")]
    for name, value in entries.items():
        if re.search(r"SECRET|PASSWORD|AUTH_CONFIG|CREDENTIALS", name):
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


# The job on a GPU


def test_a_run_has_one_gpu() -> None:
    (container,) = job()["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 1


def test_the_learner_is_a_worker_of_the_queue_train_that_has_the_key_for_it() -> None:
    (learner,) = [tree for tree in manifests() if tree["metadata"]["name"] == "learner"]
    pod = learner["spec"]["template"]["spec"]
    words = pod["containers"][0]["args"]
    assert {"--work-queue=train", "--no-create-pool-if-not-found"} <= set(words)
    values = yaml.safe_load((FOLDER / "prefect-worker-values.yaml").read_text())
    served = {word.removeprefix("--work-queue=") for word in words if word.startswith("--work-queue=")}
    assert served.isdisjoint(values["worker"]["config"]["workQueues"])
    assert served | set(values["worker"]["config"]["workQueues"]) == set(pools.QUEUES)
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["trainings"] == "/srv/zero/.zero/trainings"
    (key,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "secrets"]
    path = f"{mounts['secrets']}/{key['items'][0]['path']}"
    assert (key["secretName"], path) == ("zero-s3-training", values_of_run()["env"]["AWS_SHARED_CREDENTIALS_FILE"])


def test_a_pod_has_the_command_that_looks_whether_its_run_is_cancelled() -> None:
    """`prefect.yaml` gives one that does not, for workers that look themselves: so does the learner."""
    (container,) = job(command="python -m prefect.engine")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["prefect", "flow-run", "execute"]
    assert template()["job_configuration"]["command"] == "{{ command }}"


def test_a_run_that_ends_is_not_started_again_by_kubernetes() -> None:
    assert job()["spec"]["backoffLimit"] == 0
    assert job()["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_every_variable_of_the_template_is_used_and_every_placeholder_is_a_variable() -> None:
    placeholders = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template()["job_configuration"])))
    assert placeholders == set(template()["variables"]["properties"])


def test_a_deployment_cannot_take_more_than_its_share() -> None:
    asked = job(privileged=True, run_as_user=0, gpus=8, service_account_name="admin", volumes=[])
    assert asked == job()


def test_prefect_fills_the_template_as_these_tests_do() -> None:
    from prefect.utilities.templating import apply_values

    assert apply_values(template()["job_configuration"], values_of_run())["job_manifest"] == job()


def test_no_placeholder_is_left_in_a_job() -> None:
    assert "{{" not in json.dumps(job())


@pytest.mark.parametrize(("given", "complaint"), [({}, ""), ({"finished_job_ttl": "1h"}, "'1h' is not of type")])
def test_kubernetes_takes_the_job_that_prefect_fills(given: Tree, complaint: str) -> None:
    """Prefect's worker makes a list of the environment before it sends the job."""
    from prefect.utilities.templating import apply_values

    filled = apply_values(template()["job_configuration"], values_of_run(**given))
    container = filled["job_manifest"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in filled["env"].items()]
    if not complaint:
        return check(filled["job_manifest"])
    with pytest.raises(jsonschema.ValidationError, match=complaint):
        check(filled["job_manifest"])


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


WORKER = job()["spec"]["template"]["metadata"]["labels"]
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
        (WORKER, WORKER, 8080, False),
        (PREFECT, POSTGRES, 5432, True),
        (PREFECT, S3, 8333, False),
        (MLFLOW, POSTGRES, 5432, True),
        (MLFLOW, S3, 8333, True),
        ({"app.kubernetes.io/name": "prefect-worker"}, PREFECT, 4200, True),
        ({"app.kubernetes.io/name": "prefect-worker"}, POSTGRES, 5432, False),
        ({"app": "a stranger"}, PREFECT, 4200, False),
        ({"app.kubernetes.io/name": "prefect-worker"}, {"app": "a stranger"}, 443, False),
    ],
)
def test_who_reaches_whom(source: dict[str, str], target: dict[str, str], port: int, allowed: bool) -> None:
    assert reaches(source, target, port) is allowed


# The secrets


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
        assert given - {"s3"} <= files <= given

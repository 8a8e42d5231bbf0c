"""What the Helm charts take, by `chart-values.yaml`, and the Deployment that MLflow's chart makes of our values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.infra.schemas.kubernetes import FOLDER, SCHEMAS, Tree

VALUES = sorted(FOLDER.glob("*-values.yaml"))
"""Our values, a file a chart."""


def chart_of(path: Path) -> Tree:
    """`version` and `values` of the chart for which a file of values is."""
    charts = yaml.safe_load((SCHEMAS / "chart-values.yaml").read_text())
    tree: Tree = charts[path.name.removesuffix("-values.yaml")]
    return tree


def schema_of(kind: Any) -> Tree:
    """The JSON schema of what `chart-values.yaml` says in short."""
    match kind:
        case dict():
            fields = {key: schema_of(inner) for key, inner in kind.items()}
            return {"type": "object", "additionalProperties": False, "properties": fields}
        case [inner]:
            return {"type": "array", "items": schema_of(inner)}
        case "string" | "integer" | "boolean" | "object":
            return {"type": kind}
    return {"$ref": f"#/$defs/io.k8s.api.core.v1.{kind}"}


def mlflow() -> Tree:
    """The Deployment that MLflow's chart makes of our values, as its template was read: what the tests look at."""
    values: Tree = yaml.safe_load((FOLDER / "mlflow-values.yaml").read_text())
    options = values["server"]["value_options"]
    labels = {"app.kubernetes.io/name": "mlflow"}
    container = {
        "name": "mlflow",
        "image": f"{values['image']['repository']}:{values['image']['tag']}",
        "command": ["mlflow", "server", *(f"--{key.replace('_', '-')}={value}" for key, value in options.items())],
        "ports": [{"name": "http", "containerPort": options["port"]}],
        "env": [
            {"name": "MLFLOW_BACKEND_STORE_URI", "valueFrom": values["mlflow"]["backendStoreUriFrom"]},
            {"name": "MLFLOW_ARTIFACTS_DESTINATION", "value": values["mlflow"]["artifactsDestination"]},
            *values["env"],
        ],
        "securityContext": values["securityContext"],
        "resources": values["resources"],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *values["extraVolumeMounts"]],
    }
    pod = {
        # the chart says so in the pod's ServiceAccount
        "automountServiceAccountToken": values["serviceAccount"]["automountServiceAccountToken"],
        "securityContext": values["podSecurityContext"],
        "initContainers": values["extraInitContainers"],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *values["extraVolumes"]],
    }
    spec = {
        "replicas": values["replicaCount"],
        "strategy": values["deploymentStrategy"],
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    name = {"name": values["fullnameOverride"]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name, "spec": spec}


def at(tree: Any, wanted: str) -> Iterator[Any]:
    """Every value of that key, at any depth."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == wanted:
                yield value
            yield from at(value, wanted)
    elif isinstance(tree, list):
        for value in tree:
            yield from at(value, wanted)

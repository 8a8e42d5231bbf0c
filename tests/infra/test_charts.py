"""The values for the Helm charts: what the charts take of them, as far as it can be known without helm."""

import json
import re
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.schemas.charts import VALUES, at, chart_of, mlflow, schema_of
from tests.infra.schemas.kubernetes import FOLDER, Tree, validate

each_values = pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name)


def test_the_charts_run_what_the_pinned_set_has() -> None:
    pins = dict(line.split("==") for line in (SOURCE_DIR / "constraints.txt").read_text().splitlines() if "==" in line)
    tags = [tag for path in VALUES for tag in at(yaml.safe_load(path.read_text()), "prefectTag")]
    assert [tag.split("-")[0] for tag in tags] == [pins["prefect"]]
    pod = mlflow()["spec"]["template"]["spec"]
    tags = [body["image"].rpartition(":")[2] for body in [*pod["initContainers"], *pod["containers"]]]
    assert tags == [pins["mlflow"]] * 2


@each_values
def test_a_chart_takes_its_values(path: Path) -> None:
    validate(yaml.safe_load(path.read_text()), schema_of(chart_of(path)["values"]))


@pytest.mark.parametrize(
    ("chart", "wrong", "complaint"),
    [
        ("mlflow", {"replicas": 1}, "'replicas' was unexpected"),
        ("mlflow", {"env": [{"name": "A", "from": "b"}]}, "'from' was unexpected"),
        ("mlflow", {"securityContext": {"runAsRoot": False}}, "'runAsRoot' was unexpected"),
        ("prefect-server", {"server": {"replicaCount": "2"}}, "'2' is not of type 'integer'"),
        ("prefect-server", {"server": {"resources": {"limits": {"gpu": "1"}}}}, "'gpu' was unexpected"),
    ],
)
def test_a_chart_does_not_take_a_wrong_value(chart: str, wrong: Tree, complaint: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=re.escape(complaint)):
        validate(wrong, schema_of(chart_of(Path(f"{chart}-values.yaml"))["values"]))


def test_the_docs_install_the_charts_whose_values_are_known() -> None:
    known = {chart_of(path)["version"] for path in VALUES}
    told = [path.read_text() for path in (*VALUES, SOURCE_DIR / "docs/kubernetes.md")]
    assert {version for text in told for version in re.findall(r"--version (\S+)", text)} == known


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


@each_values
def test_chart_values_hold_no_password(path: Path) -> None:
    assert not re.search(r"(?i)(password|authString|connection-string)\s*:", path.read_text())
    tree = yaml.safe_load(path.read_text())
    assert all(auth == {"enabled": True, "existingSecret": "zero-prefect-auth"} for auth in at(tree, "basicAuth"))


@each_values
def test_chart_values_give_each_pod_limits_and_no_rights(path: Path) -> None:
    tree = yaml.safe_load(path.read_text())
    for resources in at(tree, "resources"):
        assert {"cpu", "memory"} <= resources["requests"].keys() == resources["limits"].keys()
    for rights in at(tree, "containerSecurityContext"):
        assert rights["runAsNonRoot"] and rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("names", [["prefect-server"], ["prefect-server", "prefect-server-scaled"]])
def test_somebody_makes_the_tables_of_prefect(names: list[str]) -> None:
    """The chart's job, which there is only where background services run apart; else the server itself."""
    migrates, apart = True, False
    for name in names:
        tree = yaml.safe_load((FOLDER / f"{name}-values.yaml").read_text())
        entries = {entry["name"]: entry.get("value") for entry in tree["global"]["prefect"]["env"]}
        migrates = entries.get("PREFECT_SERVER_DATABASE_MIGRATE_ON_START") != "false"
        apart = tree["backgroundServices"]["runAsSeparateDeployment"]
    assert apart is not migrates


def test_the_scaled_servers_keep_the_settings_of_the_single_one() -> None:
    single, scaled = (
        {entry["name"]: entry for entry in yaml.safe_load((FOLDER / name).read_text())["global"]["prefect"]["env"]}
        for name in ("prefect-server-values.yaml", "prefect-server-scaled-values.yaml")
    )
    assert single.items() <= scaled.items()


def test_the_scaled_servers_of_both_kinds_use_redis_alike() -> None:
    containers = yaml.safe_load((SOURCE_DIR / "infra/compose/compose.scaled.yaml").read_text())["x-redis"]
    values = yaml.safe_load((FOLDER / "prefect-server-scaled-values.yaml").read_text())["global"]["prefect"]["env"]
    found = {entry["name"]: entry.get("value", "of a secret") for entry in values}
    wanted = {name.removeprefix("SECRET_"): value for name, value in containers.items()}
    for name, value in wanted.items():
        assert found[name] == ("of a secret" if value.startswith("/run/secrets/") else value)

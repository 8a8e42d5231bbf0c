"""What each part of a native cluster is started with; the running one is in test_access.py."""

from pathlib import Path

import pytest

from infra.processes import Home
from tests.cluster.__main__ import main
from tests.cluster.parts import PORTS, Cluster, command_of, environment_of, read_cluster, write_cluster
from tests.end_to_end.project import SOURCE_DIR, run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    home = Home(tmp_path_factory.mktemp("cluster"))
    run([str(SOURCE_DIR / "infra/secrets"), str(home.state / "secrets")], SOURCE_DIR)
    return Cluster(home, {name: 20_000 + number for number, name in enumerate(PORTS)}, 4)


@pytest.mark.parametrize(("part", "role"), [("scheduler", "scheduler"), ("worker-1", "worker"), ("trainer", "client")])
def test_each_part_has_the_certificate_of_its_role(cluster: Cluster, part: str, role: str) -> None:
    env = environment_of(cluster, part)
    assert env["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
    keys = {name: value for name, value in env.items() if name.endswith("__KEY")}
    assert keys == {f"DASK_DISTRIBUTED__COMM__TLS__{role.upper()}__KEY": str(cluster.certificates / f"{role}-key.pem")}


@pytest.mark.parametrize("name", ["PREFECT_API_KEY", "AWS_ACCESS_KEY_ID", "MLFLOW_TRACKING_PASSWORD", "ZERO_WRITER"])
def test_a_part_is_told_nothing_of_the_shell(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "of another server")
    assert not [part for part in cluster.parts if environment_of(cluster, part).get(name) == "of another server"]


def test_no_password_is_on_a_command_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster.parts.program", str)
    monkeypatch.setattr("tests.cluster.parts.postgres_program", str)
    words = " ".join(word for part in cluster.parts for word in command_of(cluster, part))
    for path in cluster.secrets.iterdir():
        assert path.read_text().strip() not in words


def test_another_cluster_with_the_same_ports_is_read_back(cluster: Cluster) -> None:
    write_cluster(cluster)
    assert read_cluster(cluster.home) == cluster
    assert read_cluster(Home(cluster.home.state / "elsewhere")) is None


def test_where_there_is_no_cluster_there_is_nothing_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZERO_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["tests.cluster", "down"])
    assert main() == 0
    assert capsys.readouterr().out == "nothing was running\n"
    assert not list(tmp_path.iterdir())

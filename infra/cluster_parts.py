"""The parts of a cluster without containers: what each is, the environment its role needs, how it is known to be well.

Every server listens on loopback and asks for a password. What is kept is in `.zero/cluster`; the passwords are files of
`infra/secrets` in `.zero/cluster/secrets`. Standard library only.
"""

import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from infra.api import HOST, POOL, address, answers, fetch
from infra.processes import write_json
from infra.services import PROJECT_DIR, QUIET, Home, LocalError

PORTS = {
    **{"postgres": 5432, "s3": 8333, "prefect": 4200, "mlflow": 5000, "scheduler": 8786, "dashboard": 8787},
    **{"filer": 8888, "master": 9333, "volume": 8080},
    **{"s3_grpc": 18333, "filer_grpc": 18888, "master_grpc": 19333, "volume_grpc": 18080},
}
"""The usual port of everything that listens."""
BUCKETS = ("zero-store", "zero-mlflow")
TRAINER_LIMIT = "4"
"""Generations and campaigns at once, of as many lineages."""
POSTGRES_USER = "postgres"
KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"),
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "COLUMNS"),
    "ZERO_KERNEL_CACHE",
)
"""What a part gets of the environment of the person who started it, beside the locale."""


class Cluster(NamedTuple):
    """One cluster of this machine: where it is, its ports, the number of its workers, and their GPUs."""

    home: Home
    ports: dict[str, int]
    num_workers: int
    gpus: tuple[str, ...] = ()
    """As CUDA names them; a part that is started again gets its own, whatever the shell says."""

    @property
    def secrets(self) -> Path:
        """Folder of the passwords and keys."""
        return self.home.state / "secrets"

    def secret(self, name: str) -> str:
        """What is in a file of secrets."""
        return (self.secrets / name).read_text().strip()

    @property
    def api(self) -> str:
        """Prefect's API, with its password: not to be shown."""
        return f"http://{self.secret('prefect-auth')}@{HOST}:{self.ports['prefect']}/api"

    @property
    def scheduler(self) -> str:
        """Address of the Dask scheduler."""
        return f"tls://{HOST}:{self.ports['scheduler']}"

    @property
    def certificates(self) -> Path:
        """Folder of the certificates of Dask."""
        return self.home.state / "certificates"

    @property
    def workers(self) -> list[str]:
        """Names of the Dask workers."""
        return [f"worker-{number}" for number in range(1, self.num_workers + 1)]

    @property
    def parts(self) -> list[str]:
        """Everything that runs, in the order of its start."""
        return ["postgres", "store", "scheduler", "prefect", "mlflow", "trainer", *self.workers]


def read_cluster(home: Home) -> Cluster | None:
    """The cluster that was started here; None where there was none."""
    try:
        tree = json.loads((home.state / "cluster.json").read_text())
        ports = {name: int(tree["ports"][name]) for name in PORTS}
        return Cluster(home, ports, int(tree["workers"]), tuple(tree.get("gpus", [])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_cluster(cluster: Cluster) -> None:
    """Writes down what `read_cluster` reads."""
    tree = {"ports": cluster.ports, "workers": cluster.num_workers, "gpus": cluster.gpus}
    write_json(cluster.home.state / "cluster.json", tree)


# What each part is


def command_of(cluster: Cluster, name: str) -> list[str]:
    """Command line of a part."""
    ports = cluster.ports
    python = [sys.executable, "-m"]
    match name:
        case "postgres":
            options = {"port": ports["postgres"], "listen_addresses": HOST, "unix_socket_directories": ""}
            words = [f"--{key}={value}" for key, value in options.items()]
            return as_owner([postgres_program("postgres"), "-D", str(postgres_folder(cluster.home)), *words])
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
        case "trainer":  # several runs at once, so that a second run for a lineage is refused and does not wait
            pool = ["--pool", POOL, "--type", "process"]
            return [*python, "prefect", "worker", "start", "--name", name, "--limit", TRAINER_LIMIT, *pool]
    # The games are in a child process, whose memory Dask does not see: it sets no limit.
    words = ["--nthreads=1", "--nworkers=1", "--memory-limit=0", "--preload=flows.workers"]
    # Without a dashboard a worker still serves its metrics, on all interfaces unless an address is given.
    words += ["--no-dashboard", f"--dashboard-address={HOST}:0", f"--local-directory={cluster.home.state / 'dask'}"]
    if gpus_seen := gpus_of(cluster, name):
        words += ["--resources", f"GPU={len(gpus_seen)}"]
    return [*python, "distributed.cli.dask_worker", cluster.scheduler, "--host", HOST, "--name", name, *words]


def store_options(cluster: Cluster) -> list[str]:
    """Options of SeaweedFS: one process, whose S3 gateway asks for keys and knows what each role may do."""
    ports = cluster.ports
    folder = cluster.home.state / "store"
    options = [f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={folder}", "-filer", "-s3", "-volume.max=0"]
    options += [f"-s3.config={cluster.secrets}/s3-identities.json", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    options += ["-master.volumeSizeLimitMB=1024", "-master.telemetry=false", "-volume.preStopSeconds=1"]
    for server in ("master", "volume", "filer", "s3"):
        options += [f"-{server}.port={ports[server]}", f"-{server}.port.grpc={ports[f'{server}_grpc']}"]
    return options


def environment_of(cluster: Cluster, name: str) -> dict[str, str]:
    """Environment of a part: what its role needs and nothing of what other roles have.

    Raises:
      LocalError: there are fewer GPUs than workers.
    """
    secret, ports, state = cluster.secret, cluster.ports, cluster.home.state
    env = {key: value for key, value in os.environ.items() if key in KEPT or key.startswith("LC_")} | QUIET
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["NO_PROXY"] = f"{HOST},localhost"
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
                "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
                "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
                "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
            }
        case "mlflow":
            return (
                env
                | s3
                | {
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
            )
        case "scheduler":
            return env | tls_environment(cluster, "scheduler")
    role = "trainer" if name == "trainer" else "worker"
    env |= s3 | {
        "AWS_SHARED_CREDENTIALS_FILE": str(cluster.secrets / f"s3-{role}"),
        "PREFECT_HOME": str(state / name),
        "PREFECT_API_URL": address(ports["prefect"]) + "/api",
        "PREFECT_API_AUTH_STRING": secret("prefect-auth"),
        "PREFECT_CLIENT_MAX_RETRIES": "6",  # waits of 2, 4 ... 64 s: a restart of Prefect's server takes less,
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",  # and of its database, without which it answers so
        "ZERO_HOME": str(cluster.home.state.parent.parent),
        "ZERO_STORE": "s3://zero-store",
        "ZERO_WORKER": f"{socket.gethostname().partition('.')[0]}-{name}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi counts
    }
    if role == "worker":
        gpus_seen = ",".join(gpus_of(cluster, name))
        return env | tls_environment(cluster, "worker") | {"CUDA_VISIBLE_DEVICES": gpus_seen}
    return (
        env
        | tls_environment(cluster, "client")
        | {
            "CUDA_VISIBLE_DEVICES": ",".join(cluster.gpus),
            "DASK_SCHEDULER_ADDRESS": cluster.scheduler,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            "MLFLOW_TRACKING_URI": address(ports["mlflow"]),
            "MLFLOW_TRACKING_USERNAME": "zero",
            "MLFLOW_TRACKING_PASSWORD": secret("mlflow-password"),
        }
    )


def tls_environment(cluster: Cluster, role: str) -> dict[str, str]:
    """Dask's settings of a role: it accepts and opens encrypted connections only, with its certificate."""
    prefix, folder = "DASK_DISTRIBUTED__COMM__", cluster.certificates
    return {
        f"{prefix}REQUIRE_ENCRYPTION": "True",
        f"{prefix}TLS__CA_FILE": str(folder / "ca.pem"),
        f"{prefix}TLS__{role.upper()}__CERT": str(folder / f"{role}.pem"),
        f"{prefix}TLS__{role.upper()}__KEY": str(folder / f"{role}-key.pem"),
    }


def gpus() -> list[str]:
    """GPUs that the workers may use, as CUDA names them; CUDA_VISIBLE_DEVICES (empty: none) limits them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return [str(number) for number, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]


def gpus_of(cluster: Cluster, worker: str) -> tuple[str, ...]:
    """The GPUs of a worker: one each; the first worker also has those that are left, for trainings on several.

    Raises:
      LocalError: there are fewer GPUs than workers.
    """
    number = int(worker.rpartition("-")[2])
    if not cluster.gpus:
        return ()
    if number > len(cluster.gpus):
        raise LocalError(
            f"{worker} would share a GPU: this cluster has {len(cluster.gpus)}; start as many workers, or stop it and "
            "set CUDA_VISIBLE_DEVICES= for workers that play on cores"
        )
    spare = cluster.gpus[cluster.num_workers :] if number == 1 else ()
    return (cluster.gpus[number - 1], *spare)


def request_to_end(name: str) -> signal.Signals:
    """Signal that ends a part well: PostgreSQL would wait for its clients at the usual one."""
    return signal.SIGINT if name == "postgres" else signal.SIGTERM


def is_well(cluster: Cluster, name: str) -> bool:
    """True if a server answers, and if the scheduler knows a worker; of the trainer it is known that it runs."""
    match name:
        case "postgres":
            words = ["--quiet", f"--host={HOST}", f"--port={cluster.ports['postgres']}", "--timeout=5"]
            return subprocess.run([postgres_program("pg_isready"), *words], check=False).returncode == 0
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
    except (OSError, ValueError):
        return {}
    return {str(worker["name"]): worker for worker in workers.values()}


# Programs


def program(name: str) -> str:
    """Path of a program, beside this interpreter or on the PATH.

    Raises:
      LocalError: there is none.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=places)
    if found is None:
        raise LocalError(f"there is no {name!r} here; `make setup` installs it")
    return found


def postgres_program(name: str) -> str:
    """Path of a program of PostgreSQL: on the PATH, or the newest where Debian puts them.

    Raises:
      LocalError: there is none.
    """
    kept = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    newest = sorted(kept, key=lambda path: int(Path(path).parts[4].partition(".")[0]))[-1:]
    found = shutil.which(name) or next(iter(newest), None)
    if found is None:
        raise LocalError(f"PostgreSQL's {name!r} is not installed; on Debian: apt install postgresql")
    return found


def postgres_folder(home: Home) -> Path:
    """Folder of the databases."""
    return home.state / "postgres"


def as_owner(command: list[str]) -> list[str]:
    """The command as the user that PostgreSQL shall be: ourselves, but never root, which it refuses to be.

    Raises:
      LocalError: we are root and there is no user `postgres`.
    """
    if os.geteuid() != 0:
        return command
    try:
        pwd.getpwnam(POSTGRES_USER)
    except KeyError:
        raise LocalError(
            f"root cannot run PostgreSQL and there is no user {POSTGRES_USER!r}; use another user"
        ) from None
    return ["setpriv", f"--reuid={POSTGRES_USER}", f"--regid={POSTGRES_USER}", "--clear-groups", *command]


def script(name: str) -> str:
    """Path of a script of this folder."""
    return str(PROJECT_DIR / "infra" / name)

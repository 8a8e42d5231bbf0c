"""Settings of a machine, not of an experiment: folders and addresses, from environment variables.

| variable | meaning | default |
|---|---|---|
| ZERO_HOME | the project's folder, which contains `.zero/` | searched upwards from the current folder |
| ZERO_STORE | URL of the shard store (a folder or s3://...), or `off` | `<home>/.zero/store` |
| ZERO_PROGRESS | `json`: progress as JSON lines; `off` (as `zero --quiet`): none, and no notes | a bar or lines |
| ZERO_SIGNING_KEY | Ed25519 private key (PEM) that signs the record | `<home>/.zero/keys/signing-key.pem` |
| ZERO_KERNEL_CACHE | folder of the compiled kernels | `zero/kernels` in `$XDG_CACHE_HOME`, else in `~/.cache` |
| ZERO_GPU_LOCKS | folder of the GPU locks, shared by all users of the GPUs | `/tmp/zero-gpus` |
| ZERO_WORKER | name of this machine in the receipts of its shards | host and process id |
| MLFLOW_TRACKING_URI | MLflow server; empty: no tracking | the server of `make up`; no tracking if there is none |
"""

import json
import os
from contextlib import suppress
from pathlib import Path

STATE_FOLDER = ".zero"
STORE_OFF = "off"
PROGRESS_OFF = "off"
START_FIELD = 19
"""Place of the start time in /proc/PID/stat, after the name."""


def setting(variable: str) -> str:
    """Value of an environment variable; empty if it is not set."""
    return os.environ.get(variable, "")


def is_quiet() -> bool:
    """True if neither progress nor notes are shown."""
    return setting("ZERO_PROGRESS") == PROGRESS_OFF


def home_dir(start: Path | None = None) -> Path:
    """The project's folder.

    That is `$ZERO_HOME`; without it the parent of the `.zero` that contains `start`; otherwise the nearest folder from
    `start` upwards with a `params.yaml` or a git repository; otherwise `start`.
    """
    if given := setting("ZERO_HOME"):
        return Path(given).resolve()
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if folder.name == STATE_FOLDER:
            return folder.parent
    for folder in (here, *here.parents):
        if (folder / "params.yaml").exists() or (folder / ".git").exists():
            return folder
    return here


def servers(home: Path) -> dict[str, str]:
    """Addresses of this project's servers by name, as `make up` wrote them; empty after a restart or in a copy."""
    try:
        content = json.loads((home / STATE_FOLDER / "servers.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or not is_place_of(content.get("place", ""), home):
        return {}
    return {name: content[name] for name in ("web", "prefect", "mlflow") if name in content}


def place_of(home: Path) -> str:
    """The project's folder and the last start of this machine or container.

    After a restart, or in a copy of the folder, numbers of processes and ports mean something else.
    """
    return f"{_last_start()}:{home.resolve()}"


def is_place_of(place: str, home: Path) -> bool:
    """True if `place_of` gave this for the project since the last start, also if its folder was moved; or if empty."""
    start, _, folder = place.partition(":")
    return not place or (start == _last_start() and (Path(folder) == home.resolve() or not Path(folder).exists()))


def _last_start() -> str:
    found = []
    with suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):  # of the first process; some systems hide it
        found.append(Path("/proc/1/stat").read_text().rpartition(")")[2].split()[START_FIELD])
    return " ".join(found)


def tracking_uri(home: Path) -> str:
    """Address of the MLflow server: `$MLFLOW_TRACKING_URI`, or the one that `make up` started; empty: no tracking."""
    return os.environ.get("MLFLOW_TRACKING_URI", servers(home).get("mlflow", ""))

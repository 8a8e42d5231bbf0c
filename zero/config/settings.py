"""What belongs to a machine and not to an experiment: folders and addresses, from the environment.

| variable | meaning | default |
|---|---|---|
| ZERO_HOME | the project's folder, which has `.zero/` | found upward from the current folder |
| ZERO_STORE | URL of the shard store (a folder or s3://...), or `off` | `<home>/.zero/store` |
| ZERO_PROGRESS | `json`: stages print progress as JSON lines; else a bar where there is a terminal | |
| ZERO_SIGNING_KEY | Ed25519 private key (PEM) that signs the record | `<home>/.zero/keys/signing-key.pem` |
| ZERO_KERNEL_CACHE | folder of the compiled kernels | `zero/kernels` in `$XDG_CACHE_HOME`, else in `~/.cache` |
| ZERO_GPU_LOCKS | folder of the GPUs' locks, one for all who compute on them | `/tmp/zero-gpus` |
| ZERO_WORKER | what the receipts of this machine's shards call it | host and process number |
| MLFLOW_TRACKING_URI | where tracking is written; not written when empty | |
"""

import os
from pathlib import Path

STATE_FOLDER = ".zero"
STORE_OFF = "off"


class Settings:
    """Settings of this machine, read from the environment. An empty variable is one that is not set."""

    def __init__(self) -> None:
        self.home = _path("ZERO_HOME")
        self.store = os.environ.get("ZERO_STORE", "")
        self.progress = os.environ.get("ZERO_PROGRESS", "")
        self.signing_key = _path("ZERO_SIGNING_KEY")
        self.tracking_uri = os.environ.get("MLFLOW_TRACKING_URI", "")


def home_dir(start: Path | None = None) -> Path:
    """The project's folder: `$ZERO_HOME`, or the folder that holds the `.zero` we are in, or the checkout we are in."""
    if (given := Settings().home) is not None:
        return given.resolve()
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if folder.name == STATE_FOLDER:
            return folder.parent
    for folder in (here, *here.parents):
        if (folder / "params.yaml").exists() or (folder / ".git").exists():
            return folder
    return here


def _path(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None

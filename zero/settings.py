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
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.storage import Store

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


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store of this machine; with `ZERO_STORE=off` an empty one that is gone afterwards."""
    url = Settings().store
    if url == STORE_OFF:
        scratch = tempfile.mkdtemp(prefix="zero-store-")
        try:
            yield Store(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    else:
        here = home_dir(folder)
        local = (
            url if "://" in url else str(here / (url or f"{STATE_FOLDER}/store"))
        )  # a relative path is in the project
        yield Store(local)


def _path(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None

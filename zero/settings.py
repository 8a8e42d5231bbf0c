"""What belongs to a machine and not to an experiment: folders and addresses, from the environment.

| variable | meaning | default |
|---|---|---|
| ZERO_HOME | the project's folder, which has `.zero/` | found upward from the current folder |
| ZERO_STORE | URL of the shard store (a folder or s3://...), or `off` | `<home>/.zero/store` |
| ZERO_PROGRESS | `json`: stages print progress as JSON lines; else a bar where there is a terminal | |
| ZERO_SIGNING_KEY | Ed25519 private key (PEM) that signs the record | `<home>/.zero/keys/signing-key.pem` |
| ZERO_WORKER | what the receipts of this machine's shards call it | host and process number |
| MLFLOW_TRACKING_URI | where tracking is written; not written when empty | |
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from zero.storage import Store

STATE_FOLDER = ".zero"
STORE_OFF = "off"


class Settings(BaseSettings):
    """Settings of this machine, read from the environment."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    home: Path | None = Field(default=None, validation_alias="ZERO_HOME")
    store: str = Field(default="", validation_alias="ZERO_STORE")
    progress: str = Field(default="", validation_alias="ZERO_PROGRESS")
    signing_key: Path | None = Field(default=None, validation_alias="ZERO_SIGNING_KEY")
    tracking_uri: str = Field(default="", validation_alias="MLFLOW_TRACKING_URI")


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

"""Networks by name: a weight file, a lineage, a generation, a version in MLflow's catalogue, a shipped player.

| text | network |
|---|---|
| `weights.safetensors` | of a file; its parameters are those of a `params.yaml` beside it, where there is one |
| `go9` | the champion of a lineage; where there is none of that name, the shipped player |
| `go9/gen-0012` | the champion after that generation |
| `models:/zero-go9@champion`, `models:/zero-go9/7` | a version in the MLflow at `MLFLOW_TRACKING_URI` |
"""

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from zero.artifacts import MANIFEST_FILE, Champion, Checkpoint, checked_path, read_manifest
from zero.errors import LineageError, ServerError, StorageError
from zero.lineage import checkout_generation, find_workspace, lineages
from zero.params import PARAMS_FILE, Params, load_params
from zero.record import read_ledger
from zero.settings import Settings

TAG_PATTERN = re.compile(r"^[^/]+/gen-\d+$")
MODEL_PATTERN = re.compile(r"^models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))$")
CHAMPION_DIR, CHALLENGER_DIR = "state/champion", "models/challenger"
SHIPPED_DIR = Path(__file__).with_name("shipped")
"""Folders of players that come with the program, by name: weights, parameters, provenance."""
WEIGHTS_FILE = "weights.safetensors"


class Source(NamedTuple):
    """A network and where it comes from."""

    name: str
    weights: bytes
    """The weight file."""
    params: Params | None
    """The parameters it was made with, where they are known."""


def find_source(home: Path, text: str) -> Source:
    """The network that `text` names.

    Raises:
      LineageError: there is no such generation, lineage or shipped player.
      StorageError: the weights are missing or altered.
      ServerError: MLflow is wanted and does not answer.
    """
    path = Path(text)
    if path.is_file():
        beside = path.resolve().parent
        params = load_params(beside) if (beside / PARAMS_FILE).exists() else None
        return Source(path.name, _read(path), params)
    if text.startswith("models:/"):
        return _model(text)
    if TAG_PATTERN.match(text):
        with tempfile.TemporaryDirectory(prefix="zero-source-") as scratch:
            folder = Path(scratch) / "generation"
            checkout_generation(home, text, folder, (CHAMPION_DIR, CHALLENGER_DIR))
            return Source(text, _champion_weights(folder, text), load_params(folder))
    if "/" in text or path.suffix:
        raise StorageError(f"no file {text}; give a weight file, a lineage, or a generation such as go9/gen-0012")
    if text not in lineages(home) and text in shipped_players():
        folder = SHIPPED_DIR / text
        return Source(f"{text} (shipped)", _read(folder / WEIGHTS_FILE), load_params(folder))
    workspace = find_workspace(home, text)
    tag = f"{text}/gen-{read_ledger(workspace)[-1].generation:04d}"
    return Source(tag, _champion_weights(workspace, text), load_params(workspace))


def shipped_players() -> list[str]:
    """Names of the players that come with the program."""
    return sorted(path.parent.name for path in SHIPPED_DIR.glob(f"*/{WEIGHTS_FILE}"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from None


def _model(text: str) -> Source:
    match = MODEL_PATTERN.match(text)
    if match is None:
        raise LineageError(f"{text!r} names no version; write models:/zero-go9@champion or models:/zero-go9/7")
    uri = Settings().tracking_uri
    if not uri:
        raise ServerError(f"{text} is in MLflow, and MLFLOW_TRACKING_URI is not set; `make up` tells the address")
    from zero.tracking import model_weights

    return Source(text, model_weights(uri, match["name"], match["alias"], match["version"]), None)


def _champion_weights(folder: Path, source: str) -> bytes:
    """Weights of the champion after the last decision in a ledger: the one before it, or the challenger."""
    wanted = read_ledger(folder)[-1].champion
    kinds: dict[str, type[Champion | Checkpoint]] = {CHAMPION_DIR: Champion, CHALLENGER_DIR: Checkpoint}
    for name, kind in kinds.items():
        if (folder / name / MANIFEST_FILE).exists():
            weights = read_manifest(folder / name, kind).weights
            if weights.sha256 == wanted:
                return checked_path(weights, folder / name).read_bytes()
    raise StorageError(
        f"the champion of {source}, {wanted[:12]}, is not on this machine; "
        "fetch it with `dvc pull`, in the lineage's workspace or in a `zero checkout` of the generation"
    )

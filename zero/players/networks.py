"""Networks by name: a weight file, a lineage, a generation, a version in MLflow's catalogue, a shipped player.

| text | network |
|---|---|
| `weights.safetensors` | of a file; its parameters are those of a `params.yaml` beside it, where there is one |
| `go9` | the champion of the lineage; the shipped player if there is no lineage of that name |
| `go9/gen-0012` | the champion after that generation |
| `models:/zero-go9@champion`, `models:/zero-go9/7` | a version in the MLflow at `MLFLOW_TRACKING_URI` |
| `shipped:go9` | the player that comes with the program, whatever lineages and files there are |

A generation is read out of git and DVC's cache; nothing is cloned or checked out. Where a signed statement lies beside
a weight file, as in the folders of `zero.interop.folder`, weights and parameters must be those it speaks of.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from zero.config.params import PARAMS_FILE, Params, parse_params
from zero.config.settings import Settings
from zero.errors import LineageError, ParamsError, ServerError, StorageError
from zero.network.profile import resolve_here
from zero.record.ledger import find_workspace, lineages
from zero.record.provenance import read_envelope, signed_by
from zero.storage.files import sha256_bytes
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR, KEY_FILE, PROVENANCE_FILE, WEIGHTS_FILE

if TYPE_CHECKING:
    from zero.record.generation import Generation

TAG_PATTERN = re.compile(r"^(?P<lineage>[^/]+)/gen-(?P<number>\d+)$")
MODEL_PATTERN = re.compile(r"^models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))$")
SHIPPED_PREFIX = "shipped:"
SHIPPED_DIR = Path(__file__).with_name("shipped")
"""Folders of players that come with the program, by name: weights, parameters, provenance."""
STATEMENT_FILE, PUBLIC_KEY_FILE = Path(PROVENANCE_FILE).name, Path(KEY_FILE).name
SUBJECTS = (f"{CHALLENGER_DIR}/{WEIGHTS_FILE}", f"{CHAMPION_DIR}/{WEIGHTS_FILE}")
"""What a statement calls the network that plays; its other subjects are a trainee and what belongs to one."""


class Source(NamedTuple):
    """A network and where it comes from."""

    name: str
    weights: bytes
    """The weight file."""
    params_file: bytes | None = None
    """The `params.yaml` it was made with, where that is known."""

    @property
    def params(self) -> Params | None:
        """The parameters it was made with, where they are known.

        Raises:
          ParamsError: this version of the program cannot read them.
        """
        if self.params_file is None:
            return None
        return parse_params(self.params_file.decode(errors="replace"), f"{PARAMS_FILE} of {self.name}")


def find_source(home: Path, text: str) -> Source:
    """The network that `text` names.

    Raises:
      LineageError: there is no such generation, lineage or shipped player, or the signature beside it does not hold.
      StorageError: the weights are missing, altered, or not those of the statement beside them.
      ServerError: MLflow is wanted and does not answer.
    """
    if (name := shipped_name(home, text)) is not None:
        files = read_player(SHIPPED_DIR / name)
        return Source(f"{SHIPPED_PREFIX}{name}", files[WEIGHTS_FILE], files[PARAMS_FILE])
    path = Path(text)
    if path.is_file():
        return _file(path)
    if text.startswith("models:/"):
        return _model(text)
    if match := TAG_PATTERN.match(text):
        return _champion(home, match["lineage"], text)
    if "/" in text or path.suffix:
        raise StorageError(f"no file {text}; give a weight file, a lineage, or a generation such as go9/gen-0012")
    find_workspace(home, text)
    return _champion(home, text)


def shipped_players() -> list[str]:
    """Names of the players that come with the program."""
    return sorted(path.parent.name for path in SHIPPED_DIR.glob(f"*/{WEIGHTS_FILE}"))


def shipped_name(home: Path, text: str) -> str | None:
    """Name of the shipped player that `text` means; None if it means another network.

    Raises:
      LineageError: no player of that name is shipped.
    """
    if text.startswith(SHIPPED_PREFIX):
        name = text.removeprefix(SHIPPED_PREFIX)
        if name not in (known := shipped_players()):
            texts = " or ".join(f"{SHIPPED_PREFIX}{each}" for each in known)
            raise LineageError(f"unknown shipped player {name!r}; give {texts}")
        return name
    return text if text in shipped_players() and text not in lineages(home) and not Path(text).is_file() else None


def has_two_meanings(home: Path, text: str) -> bool:
    """True if a lineage here and a shipped player have this name."""
    return text in shipped_players() and text in lineages(home) and not Path(text).is_file()


def weights_of(generation: "Generation", sha256: str) -> bytes | None:
    """The weight file of that digest; None where `weights_path` is.

    Raises:
      StorageError: it was altered.
    """
    path = weights_path(generation, sha256)
    weights = _read(path) if path else None
    if weights is not None and sha256_bytes(weights) != sha256:
        raise StorageError(
            f"network {sha256[:12]} of {generation.tag} was altered; delete {path} and `dvc pull` it again"
        )
    return weights


def weights_path(generation: "Generation", sha256: str) -> Path | None:
    """Where the network of that digest is here, if a generation began with it as champion or made it; not read."""
    for folder, manifest in ((CHAMPION_DIR, generation.champion), (CHALLENGER_DIR, generation.challenger)):
        if manifest is not None and manifest.weights.sha256 == sha256:
            md5 = generation.object_of(folder, manifest.weights.path)
            if md5 and (path := generation.cache.path(md5)).exists():
                return path
    return None


def read_player(folder: Path, weights: str = WEIGHTS_FILE) -> dict[str, bytes]:
    """The files of a player's folder by name, checked; its weights, whatever their file is called, by `WEIGHTS_FILE`.

    Raises:
      StorageError: one is missing, or weights or parameters are not those of the statement.
      LineageError: the statement is not signed by the key beside it.
    """
    files = {name: _read(folder / name) for name in (PARAMS_FILE, STATEMENT_FILE, PUBLIC_KEY_FILE)}
    files[WEIGHTS_FILE] = _read(folder / weights)
    check_player(files, str(folder))
    return files


def check_player(files: dict[str, bytes], name: str) -> None:
    """Checks that the weights are what the signed statement is about, and the parameters what it says was asked for.

    Parameters that this version cannot read pass: it cannot use them either, and says so where they are wanted.

    Raises:
      StorageError: they are not.
      LineageError: the signature does not hold.
    """
    if not signed_by(files[STATEMENT_FILE], files[PUBLIC_KEY_FILE], name):
        raise LineageError(f"the statement of {name} is not signed by its key; `zero audit` says what was altered")
    statement = read_envelope(files[STATEMENT_FILE], name).statement
    digest = sha256_bytes(files[WEIGHTS_FILE])
    if all(each.sha256 != digest for each in statement.subject if each.name in SUBJECTS):
        raise StorageError(f"the weights {digest[:12]} of {name} are not what its signed statement is about")
    if _are_others(files[PARAMS_FILE], statement.asked.parameters):
        raise StorageError(f"{PARAMS_FILE} of {name} is not what its signed statement says; take the player anew")


def _are_others(params_file: bytes, asked: dict[str, Any]) -> bool:
    try:
        params = parse_params(params_file.decode(errors="replace"))
    except ParamsError:
        return False
    try:
        return Params.model_validate(asked) != params
    except ValidationError:
        return True


def _file(path: Path) -> Source:
    beside = path.resolve().parent
    if (beside / STATEMENT_FILE).exists():
        files = read_player(beside, path.resolve().name)
        return Source(path.name, files[WEIGHTS_FILE], files[PARAMS_FILE])
    params_path = beside / PARAMS_FILE
    if not params_path.exists():
        return Source(path.name, _read(path))
    params_text = _read(params_path).decode(errors="replace")
    return Source(path.name, _read(path), resolve_here(params_text).encode())  # the project's file may say `auto`


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

    return Source(text, model_weights(uri, match["name"], match["alias"], match["version"]))


def _champion(home: Path, lineage: str, tag: str = "") -> Source:
    """The champion after a generation of a lineage, by default the newest."""
    from zero.record.lineages import Chains  # with what reads games; other sources do not need it

    with Chains(home) as chains:
        recorded = [each for each in chains.generations(lineage) if each.entry and tag in ("", each.tag)]
        if not recorded:
            raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` shows those there are")
        found = recorded[-1]
        assert found.entry is not None
        weights = weights_of(found, found.entry.champion)
        if weights is None:
            raise StorageError(
                f"the champion of {found.tag}, {found.entry.champion[:12]}, is not on this machine; fetch it with "
                "`dvc pull`, in the lineage's workspace or in a `zero checkout` of the generation"
            )
        return Source(found.tag, weights, found.file(PARAMS_FILE))

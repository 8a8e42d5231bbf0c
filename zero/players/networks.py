"""Network resolution: finds the weights and parameters that a network's name refers to.

| name | network |
|---|---|
| `weights.safetensors` | a weight file, with the parameters of a `params.yaml` beside it, if there is one |
| `go9` | the champion of the lineage, or the shipped player if there is no lineage of that name |
| `go9/gen-0012` | the champion after that generation |
| `models:/zero-go9@champion`, `models:/zero-go9/7` | a model version in MLflow |
| `shipped:go9` | the player that comes with the program, even if a lineage or file has its name |

In `zero play` and `zero gtp`, `player_choice` first decides between a lineage and a shipped player of one name.

Generations are read from git and DVC's cache, without a checkout. If a signed attestation is stored beside a weight
file, as in the folders of `zero.interop.export`, weights and parameters must be those that it attests.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from zero.config.params import PARAMS_FILE, Params, parse_params
from zero.config.settings import tracking_uri
from zero.errors import LineageError, ParamsError, ServerError, StorageError
from zero.network.profile import resolve_here
from zero.record.ledger import find_workspace, lineages_here, parse_tag
from zero.record.provenance import read_envelope
from zero.storage.files import sha256_bytes
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR, KEY_FILE, PROVENANCE_FILE, WEIGHTS_FILE

if TYPE_CHECKING:
    from zero.record.generation import Generation

MODEL_PATTERN = re.compile(r"^models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))$")
SHIPPED_PREFIX = "shipped:"
SHIPPED_DIR = Path(__file__).with_name("shipped")
"""Folder with a player folder for each player that comes with the program."""
ATTESTATION_FILE, PUBLIC_KEY_FILE = Path(PROVENANCE_FILE).name, Path(KEY_FILE).name
SUBJECTS = (f"{CHALLENGER_DIR}/{WEIGHTS_FILE}", f"{CHAMPION_DIR}/{WEIGHTS_FILE}")
"""Subjects of an attestation that are networks to play with; the others are training checkpoints and their parts."""


class ResolvedNetwork(NamedTuple):
    """A network's weights and the parameters that it was made with."""

    name: str
    weights: bytes
    """Content of the weight file."""
    params_file: bytes | None = None
    """Content of its `params.yaml`; None if unknown."""

    def read_params(self) -> Params | None:
        """The parameters that it was made with; None if unknown.

        Raises:
          ParamsError: this version of the program cannot read them.
        """
        if self.params_file is None:
            return None
        return parse_params(self.params_file.decode(errors="replace"), f"{PARAMS_FILE} of {self.name}")


def resolve_network(home: Path, name: str) -> ResolvedNetwork:
    """Finds the network that `name` refers to.

    Raises:
      LineageError: there is no such generation, lineage or shipped player, or the signature beside it is invalid.
      StorageError: the weights are missing, corrupt, or not those of the attestation beside them.
      ServerError: the name is a model version, and MLflow is not configured or does not answer.
    """
    if (shipped := shipped_name(home, name)) is not None:
        files = read_player_folder(SHIPPED_DIR / shipped)
        return ResolvedNetwork(f"{SHIPPED_PREFIX}{shipped}", files[WEIGHTS_FILE], files[PARAMS_FILE])
    path = Path(name)
    if path.is_file():
        return _file(path)
    if name.startswith("models:/"):
        return _model(home, name)
    if parsed := parse_tag(name):
        return _champion(home, parsed[0], name)
    if "/" in name or path.suffix:  # not the name of a lineage
        raise StorageError(
            f"cannot find the file {name}; give a weight file, a lineage, or a generation such as go9/gen-0012"
        )
    find_workspace(home, name)  # raises if there is none: a lineage's name needs its workspace, a tag does not
    return _champion(home, name)


def shipped_players() -> list[str]:
    """Names of the players that come with the program."""
    return sorted(path.parent.name for path in SHIPPED_DIR.glob(f"*/{WEIGHTS_FILE}"))


def shipped_name(home: Path, name: str) -> str | None:
    """Name of the shipped player that a network's name refers to; None if it refers to another network.

    Raises:
      LineageError: there is no shipped player of that name.
    """
    if name.startswith(SHIPPED_PREFIX):
        shipped = name.removeprefix(SHIPPED_PREFIX)
        if shipped not in (known := shipped_players()):
            names = " or ".join(f"{SHIPPED_PREFIX}{each}" for each in known)
            raise LineageError(f"unknown shipped player {shipped!r}; give {names}")
        return shipped
    return name if name in shipped_players() and name not in lineages_here(home) and not Path(name).is_file() else None


def shipped_generation(name: str) -> int:
    """Generation of its lineage that made a shipped player, as the attestation says."""
    return read_envelope(_read(SHIPPED_DIR / name / ATTESTATION_FILE), name).attestation.external.generation


def is_ambiguous(home: Path, name: str) -> bool:
    """True if both a lineage in this project and a shipped player have this name."""
    return name in shipped_players() and name in lineages_here(home) and not Path(name).is_file()


def weights_of(generation: "Generation", sha256: str) -> bytes | None:
    """Content of the weight file with this digest; None if it is not on this machine.

    Raises:
      StorageError: it is corrupt.
    """
    path = weights_path(generation, sha256)
    weights = _read(path) if path else None
    if weights is not None and sha256_bytes(weights) != sha256:
        raise StorageError(
            f"network {sha256[:12]} of {generation.tag} is corrupt; delete {path} and run `dvc pull` to fetch it again"
        )
    return weights


def weights_path(generation: "Generation", sha256: str) -> Path | None:
    """Path in DVC's cache of the weights with this digest that a generation started with or made; None if not there."""
    for folder in (CHAMPION_DIR, CHALLENGER_DIR):
        for ref in generation.file_refs(folder):
            if ref.sha256 == sha256 and (path := generation.data_path(folder, ref.path)) is not None:
                return path
    return None


def read_player_folder(folder: Path, weights: str = WEIGHTS_FILE) -> dict[str, bytes]:
    """Reads and checks a player folder; returns its files by name.

    Args:
      folder: the folder.
      weights: name of the weight file there; the result has it as `WEIGHTS_FILE`.

    Raises:
      StorageError: a file is missing, or weights or parameters are not those of the attestation.
      LineageError: the attestation is not signed by the key beside it.
    """
    files = {name: _read(folder / name) for name in (PARAMS_FILE, ATTESTATION_FILE, PUBLIC_KEY_FILE)}
    files[WEIGHTS_FILE] = _read(folder / weights)
    check_player_files(files, str(folder))
    return files


def check_player_files(files: dict[str, bytes], name: str) -> None:
    """Checks that the signed attestation is about these weights and these parameters.

    Parameters that this version cannot read pass the check. They fail later, where they are used.

    Raises:
      StorageError: the attestation is about other weights or parameters.
      LineageError: the signature is invalid.
    """
    envelope = read_envelope(files[ATTESTATION_FILE], name)
    if not envelope.signed_by(files[PUBLIC_KEY_FILE]):
        raise LineageError(f"the attestation of {name} is not signed by its key; `zero audit` finds what was changed")
    attestation = envelope.attestation
    digest = sha256_bytes(files[WEIGHTS_FILE])
    # compared by digest, because an attestation names the file by its path in the workspace
    if all(each.sha256 != digest for each in attestation.subject if each.name in SUBJECTS):
        raise StorageError(f"the weights {digest[:12]} of {name} are not those of its signed attestation")
    if _differ(files[PARAMS_FILE], attestation.external.parameters):
        raise StorageError(f"{PARAMS_FILE} of {name} differs from its signed attestation; copy the player again")


def _differ(params_file: bytes, attested: dict[str, Any]) -> bool:
    try:
        params = parse_params(params_file.decode(errors="replace"))
    except ParamsError:
        return False
    try:
        return Params.model_validate(attested) != params
    except ValidationError:
        return True


def _file(path: Path) -> ResolvedNetwork:
    folder = path.resolve().parent
    if (folder / ATTESTATION_FILE).exists():
        files = read_player_folder(folder, path.resolve().name)
        return ResolvedNetwork(path.name, files[WEIGHTS_FILE], files[PARAMS_FILE])
    params_path = folder / PARAMS_FILE
    if not params_path.exists():
        return ResolvedNetwork(path.name, _read(path))
    params_text = _read(params_path).decode(errors="replace")
    # a project's own params.yaml can contain `auto` values
    return ResolvedNetwork(path.name, _read(path), resolve_here(params_text).encode())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from None


def _model(home: Path, name: str) -> ResolvedNetwork:
    match = MODEL_PATTERN.match(name)
    if match is None:
        raise LineageError(f"{name!r} does not name a version; write models:/zero-go9@champion or models:/zero-go9/7")
    uri = tracking_uri(home)
    if not uri:
        raise ServerError(
            f"{name} is in MLflow, but MLFLOW_TRACKING_URI is not set and no local server runs; set it, or run "
            "`make up`"
        )
    from zero.tracking import open_client

    with open_client(uri) as client:
        return ResolvedNetwork(name, client.model_weights(uri, match["name"], match["alias"], match["version"]))


def _champion(home: Path, lineage: str, tag: str = "") -> ResolvedNetwork:
    """The champion after a generation of a lineage, by default the newest."""
    from zero.record.lineages import ProjectRecord  # slow to import, and other kinds of names do not need it

    with ProjectRecord(home) as record:
        recorded = [each for each in record.generations(lineage) if each.entry and tag in ("", each.tag)]
        if not recorded and not tag:
            raise LineageError(
                f"the ledger of lineage {lineage} has no readable entry; `zero audit {lineage}` reports more"
            )
        if not recorded:
            raise LineageError(f"unknown generation {tag!r}; list them with `git tag --list '*/gen-*'`")
        found = recorded[-1]
        assert found.entry is not None
        weights = weights_of(found, found.entry.champion)
        if weights is None:
            raise StorageError(
                f"the champion of {found.tag}, {found.entry.champion[:12]}, is not on this machine; fetch it with "
                "`dvc pull`, in the lineage's workspace or in a `zero checkout` of the generation"
            )
        return ResolvedNetwork(found.tag, weights, found.file(PARAMS_FILE))

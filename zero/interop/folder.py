"""A player as a folder that needs no record: weights, parameters, and the signed statement of what made the weights.

| file | what |
|---|---|
| `weights.safetensors` | the network |
| `params.yaml` | the parameters it was made with, of the generation that made it |
| `provenance.intoto.jsonl` | the signed statement of that generation, whose subject the weights are |
| `signing-key.pub` | the public key of the signature |

`zero play FOLDER/weights.safetensors` plays it; the players in `zero/shipped` are such folders.
"""

import re
from pathlib import Path

from zero.artifacts import sha256_bytes, write_whole
from zero.commands import git
from zero.errors import LineageError, StorageError
from zero.params import PARAMS_FILE
from zero.provenance import KEY_FILE, PROVENANCE_FILE, read_envelope, signed_by
from zero.record import LEDGER_FILE, generation_tag, parse_ledger
from zero.sources import WEIGHTS_FILE, find_source

TAG_PATTERN = re.compile(r"(?P<lineage>[^/]+)/gen-\d+$")
STATEMENT_FILE, PUBLIC_KEY_FILE = Path(PROVENANCE_FILE).name, Path(KEY_FILE).name


def export_player(home: Path, source: str, out: Path) -> int:
    """Writes the champion that a lineage or a generation names as a folder; returns the size in bytes.

    Raises:
      LineageError: there is no such generation or lineage, or its signature does not hold.
      StorageError: the weights are missing or altered, or `out` cannot be written.
    """
    found = find_source(home, source)
    match = TAG_PATTERN.match(found.name)
    if match is None:
        raise LineageError(f"{source} is no recorded generation; name a lineage, or a generation such as go9/gen-0012")
    ledger = parse_ledger(git(home, "show", f"{found.name}:{LEDGER_FILE}"), f"{found.name}:{LEDGER_FILE}")
    tag = generation_tag(match["lineage"], ledger[-1].champion_generation)
    files = {
        name.rpartition("/")[2]: git(home, "show", f"{tag}:{name}").encode()
        for name in (PARAMS_FILE, PROVENANCE_FILE, KEY_FILE)
    }
    files[WEIGHTS_FILE] = found.weights
    check_player(files, tag)
    for name, data in files.items():
        write_whole(out / name, data)
    return sum(map(len, files.values()))


def read_player(folder: Path) -> dict[str, bytes]:
    """The files of a player's folder, checked.

    Raises:
      StorageError: one is missing, or the weights are not those of the statement.
      LineageError: the statement is not signed by the key beside it.
    """
    files = {}
    for name in (PARAMS_FILE, STATEMENT_FILE, PUBLIC_KEY_FILE, WEIGHTS_FILE):
        try:
            files[name] = (folder / name).read_bytes()
        except OSError as error:
            raise StorageError(f"cannot read {folder / name}: {error.strerror}") from None
    check_player(files, str(folder))
    return files


def check_player(files: dict[str, bytes], name: str) -> None:
    """Checks that the weights are what the signed statement is about.

    Raises:
      StorageError: they are not.
      LineageError: the signature does not hold.
    """
    statement = files[STATEMENT_FILE]
    if not signed_by(statement, files[PUBLIC_KEY_FILE], name):
        raise LineageError(f"the statement of {name} is not signed by its key; `zero audit` says what was altered")
    digest = sha256_bytes(files[WEIGHTS_FILE])
    subject = read_envelope(statement, name).statement.subject
    if all(each.sha256 != digest for each in subject):
        raise StorageError(f"the weights {digest[:12]} of {name} are not what its signed statement is about")

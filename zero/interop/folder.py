"""A player as a folder that needs no record: weights, parameters, and the signed statement of what made the weights.

| file | what |
|---|---|
| `weights.safetensors` | the network |
| `params.yaml` | the parameters it was made with, of the generation that made it |
| `provenance.intoto.jsonl` | the signed statement of that generation, whose subject the weights are |
| `signing-key.pub` | the public key of the signature |

`zero play FOLDER/weights.safetensors` plays it, after the checks of `zero.players.networks`. The players in
`zero/players/shipped` are such folders.
"""

from pathlib import Path

from zero.config.params import PARAMS_FILE
from zero.errors import LineageError, StorageError
from zero.players.networks import SHIPPED_DIR, TAG_PATTERN, check_player, find_source, read_player, shipped_name
from zero.record.generation import Generation
from zero.record.lineages import Chains
from zero.storage.files import write_atomic
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE, WEIGHTS_FILE


def export_player(home: Path, source: str, out: Path) -> int:
    """Writes a shipped player, or the champion of a lineage or generation, as a folder; returns the size in bytes.

    Raises:
      LineageError: there is no such generation, lineage or shipped player, or its signature does not hold.
      StorageError: the weights are missing or altered, or `out` cannot be written.
    """
    shipped = shipped_name(home, source)
    files = _champion_files(home, source) if shipped is None else read_player(SHIPPED_DIR / shipped)
    for name, data in files.items():
        write_atomic(out / name, data)
    return sum(map(len, files.values()))


def _champion_files(home: Path, source: str) -> dict[str, bytes]:
    """The files of a recorded champion's folder by name, checked."""
    found = find_source(home, source)
    match = TAG_PATTERN.match(found.name)
    if match is None:
        raise LineageError(f"{source} is no recorded generation; name a lineage, or a generation such as go9/gen-0012")
    with Chains(home) as chains:
        made = maker(chains, match["lineage"], int(match["number"]))
        files = {Path(name).name: _recorded(made, name) for name in (PARAMS_FILE, PROVENANCE_FILE, KEY_FILE)}
    files[WEIGHTS_FILE] = found.weights
    check_player(files, made.tag)
    return files


def maker(chains: Chains, lineage: str, number: int) -> Generation:
    """The generation that made the champion after that one: the first with it, also in a lineage branched from."""
    ancestry = chains.ancestry(lineage, number)
    last = ancestry[-1].entry
    return next(each for each in ancestry if each.entry and last and each.entry.champion == last.champion)


def _recorded(made: Generation, name: str) -> bytes:
    data = made.file(name)
    if data is None:
        raise StorageError(f"{made.tag} has no {name}; `zero audit` says more")
    return data

"""`zero export`: a network in the format of another program, or a player folder that needs no lineage.

| file of a player folder | content |
|---|---|
| `weights.safetensors` | the network |
| `params.yaml` | the parameters of the generation that made it |
| `provenance.intoto.jsonl` | the signed attestation of that generation; the weights are its subject |
| `signing-key.pub` | the public key of the signature |

`zero play FOLDER/weights.safetensors` plays it, after the checks of `zero.players.networks`. The players in
`zero/players/shipped` are such folders.
"""

from pathlib import Path
from typing import Literal

from zero.config.params import PARAMS_FILE
from zero.errors import LineageError, StorageError
from zero.network.weights import load_network
from zero.players.networks import SHIPPED_DIR, check_player_files, read_player_folder, resolve_network, shipped_name
from zero.record.generation import Generation
from zero.record.ledger import parse_tag
from zero.record.lineages import ProjectRecord, champion_maker
from zero.storage.files import write_atomic
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE, WEIGHTS_FILE


def export_network(home: Path, name: str, out: Path, file_format: Literal["leela-zero", "onnx"]) -> int:
    """Writes a network to the file `out` in another program's format; returns the size in bytes.

    Raises:
      LineageError: there is no such generation or lineage.
      StorageError: the weights are missing or corrupt, or `out` cannot be written.
      ParamsError: the format does not support the network.
    """
    network = load_network(resolve_network(home, name).weights)
    if file_format == "onnx":
        from zero.interop.onnx import onnx_model

        data = onnx_model(network)
    else:
        from zero.interop.leela_zero import leela_zero_weights

        data = leela_zero_weights(network)
    write_atomic(out, data)
    return len(data)


def export_player(home: Path, name: str, out: Path) -> int:
    """Writes a shipped player, or the champion of a lineage or generation, to the folder `out`; returns its bytes.

    Raises:
      LineageError: there is no such generation, lineage or shipped player, or its signature is invalid.
      StorageError: the weights are missing or corrupt, or `out` cannot be written.
    """
    shipped = shipped_name(home, name)
    files = _champion_files(home, name) if shipped is None else read_player_folder(SHIPPED_DIR / shipped)
    for file_name, data in files.items():
        write_atomic(out / file_name, data)
    return sum(map(len, files.values()))


def _champion_files(home: Path, name: str) -> dict[str, bytes]:
    """Files of the player folder of a recorded champion, by name, checked."""
    network = resolve_network(home, name)
    parsed = parse_tag(network.name)
    if parsed is None:
        raise LineageError(f"{name} is not a recorded generation; give a lineage, or a generation such as go9/gen-0012")
    with ProjectRecord(home) as record:
        maker = champion_maker(record, *parsed)
        files = {Path(file).name: _recorded(maker, file) for file in (PARAMS_FILE, PROVENANCE_FILE, KEY_FILE)}
    files[WEIGHTS_FILE] = network.weights
    check_player_files(files, maker.tag)
    return files


def _recorded(generation: Generation, name: str) -> bytes:
    data = generation.file(name)
    if data is None:
        raise StorageError(f"{generation.tag} lacks {name}; `zero audit` finds out why")
    return data

"""Games of a lineage's generations, where DVC keeps them; nothing is checked out or fetched."""

from collections.abc import Iterator

from zero.data.records import GameColumns, read_records
from zero.errors import StorageError
from zero.record.generation import Generation
from zero.storage.files import sha256_bytes
from zero.storage.layout import GAMES_DIR
from zero.storage.manifests import MANIFEST_FILE, GameSet, Sha256


def games_digest(generation: Generation) -> Sha256 | None:
    """SHA-256 of the manifest of a generation's games; None where it is not here."""
    data = generation.data(GAMES_DIR, MANIFEST_FILE)
    return sha256_bytes(data) if data else None


def shards_of(generation: Generation) -> Iterator[GameColumns]:
    """The shards of a generation's games, one in memory at a time.

    Raises:
      StorageError: one is not here, or altered.
    """
    data = generation.data(GAMES_DIR, MANIFEST_FILE)
    assert data is not None
    for shard in GameSet.model_validate_json(data).shards:
        found = generation.data(GAMES_DIR, shard.file.path)
        where = f"{GAMES_DIR}/{shard.file.path} of {generation.tag}"
        if found is None or sha256_bytes(found) != shard.file.sha256:
            state = "is not on this machine" if found is None else "was altered"
            raise StorageError(f"{where} {state}; `dvc pull` in a folder made by `zero checkout {generation.tag}`")
        yield read_records(found, where)


def num_shards(generation: Generation) -> int:
    """Shards of a generation's games."""
    data = generation.data(GAMES_DIR, MANIFEST_FILE)
    assert data is not None
    return len(GameSet.model_validate_json(data).shards)

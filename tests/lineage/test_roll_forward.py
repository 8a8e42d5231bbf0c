"""The state of the next generation is set up by a call that is repeated after a crash at any point."""

from pathlib import Path

import pytest

from tests.made_generations import made_decision, made_entry
from zero.config.params import NetworkParams
from zero.lineage import registry
from zero.lineage.registry import _previous_champion
from zero.storage.files import file_ref, write_manifest
from zero.storage.layout import CHAMPION_DIR, GENERATION_FILE
from zero.storage.manifests import NO_RESIGNATION, Champion, GenerationId


@pytest.mark.parametrize("left", [None, b"weig", b"those of the next"], ids=["missing", "cut", "others"])
def test_a_champion_of_which_a_killed_call_left_a_part_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    """The call was killed while it removed the folder to replace it, or while DVC restored it."""
    weights = tmp_path / CHAMPION_DIR / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    champion = Champion(generation=1, network=NetworkParams(), weights=file_ref(weights, weights.parent))
    write_manifest(weights.parent, champion)
    write_manifest(tmp_path, GenerationId(lineage="go9", number=2, resign_threshold=NO_RESIGNATION), GENERATION_FILE)
    if left is None:
        weights.unlink()
    else:
        weights.write_bytes(left)

    def restore(_: Path, *words: str) -> None:
        assert words == ("checkout", "--quiet", "--force", CHAMPION_DIR)
        weights.write_bytes(b"weights")

    monkeypatch.setattr(registry, "_commit_of_last_entry", lambda _: "HEAD")
    monkeypatch.setattr(registry, "git", lambda *_: "")
    monkeypatch.setattr(registry, "dvc", restore)
    decision = made_decision("go9", 2, True, 6, 10, challenger="b" * 64, champion=champion.weights.sha256)
    assert _previous_champion(tmp_path, made_entry(2), decision) == champion
    assert weights.read_bytes() == b"weights"

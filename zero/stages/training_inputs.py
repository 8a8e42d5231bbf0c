"""What a training's outcome is made of; apart from the stage, so that who only asks for it needs no torch."""

from pathlib import Path

from zero.config.params import Params, params_digest
from zero.shards.spec import code_digest
from zero.storage.files import read_manifest, sha256_file
from zero.storage.layout import GENERATION_FILE, TRAINEE_DIR, WINDOW_DIR
from zero.storage.manifests import MANIFEST_FILE, GenerationId, Origin

STAGE = "training"


def training_origin(folder: Path, params: Params) -> Origin:
    """The origin of the challenger that a workspace is about to get.

    Raises:
      StorageError: the generation, the window or the trainee is not there.
    """
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    return Origin(
        stage=STAGE,
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, STAGE),
        engine=code_digest(STAGE),
        inputs={
            WINDOW_DIR: sha256_file(folder / WINDOW_DIR / MANIFEST_FILE),
            TRAINEE_DIR: sha256_file(folder / TRAINEE_DIR / MANIFEST_FILE),
        },
    )

"""The origin that a stage writes into its manifest: everything its output is computed from, by digest.

Imports neither torch nor the kernels, so that planning a stage stays fast.
"""

from collections.abc import Mapping
from pathlib import Path

from zero.config.params import Params, params_digest
from zero.shards.spec import code_digest
from zero.storage.files import sha256_file
from zero.storage.layout import TRAINEE_DIR, WINDOW_DIR
from zero.storage.manifests import MANIFEST_FILE, GenerationId, Origin


def origin_of(stage: str, params: Params, generation: GenerationId, inputs: Mapping[str, str]) -> Origin:
    """The origin of a stage's output in a generation.

    Args:
      stage: name of the stage in `dvc.yaml`.
      params: the parameters; only the sections that the stage uses count.
      generation: the generation in progress.
      inputs: SHA-256 of each input, by name.
    """
    return Origin(
        stage=stage,
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, stage),
        engine=code_digest(stage),
        inputs=dict(inputs),
    )


def training_origin(folder: Path, params: Params, generation: GenerationId) -> Origin:
    """The origin of the generation's challenger. Its digest is the training input digest.

    Raises:
      StorageError: the window or the trainee is missing.
    """
    inputs = {name: sha256_file(folder / name / MANIFEST_FILE) for name in (WINDOW_DIR, TRAINEE_DIR)}
    return origin_of("training", params, generation, inputs)

"""The imported games that a lineage starts with: the training split of a dataset of the project (`zero import`).

The dataset must be committed with DVC, because `zero reproduce` makes the lineage again from its commit. The games
become the first window, as shards of generation 0. From then on they are games like those of self-play, and older than
all of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zero.config.params import Params
from zero.errors import LineageError, ParamsError
from zero.progress import Progress
from zero.record.provenance import DATASET
from zero.storage.files import link_or_copy, read_manifest, sha256_file, write_manifest
from zero.storage.layout import OLD_WINDOW_DIR
from zero.storage.manifests import MANIFEST_FILE, Origin, ShardRef, Window, WindowShard
from zero.storage.vcs import dvc, git

if TYPE_CHECKING:  # it imports the kernels
    from zero.data.dataset.manifest import DatasetFile


def copy_dataset(home: Path, workspace: Path, params: Params) -> None:
    """Puts the dataset of the parameters into a new workspace, and its files into the shared cache of DVC.

    Raises:
      ParamsError: the dataset is not inside the project, or has games of another kind.
      LineageError: it is not committed, or has changed since.
      StorageError: it is not a dataset, or a file cannot be read or written.
    """
    from zero.data.dataset.manifest import Dataset  # imports the kernels

    name, file = params.dataset, f"{params.dataset.rstrip('/')}.dvc"
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ParamsError(f"dataset = {name!r}: must be a folder inside the project, relative to it")
    if not (home / name / MANIFEST_FILE).exists():
        raise LineageError(
            f"dataset = {name!r}: there is no such dataset in {home}; make it with `zero import`, or get it with "
            f"`dvc pull {file}`"
        )
    dataset = read_manifest(home / name, Dataset)
    if dataset.game != params.game:
        raise ParamsError(
            f"dataset = {name!r} has games of {dataset.game}, but the parameters have {params.game}; import the games "
            "with the game of these parameters (`zero import --params` or `--preset`)"
        )
    remedy = f"run `dvc add {name} && git add {file} && git commit`"
    if not (workspace / file).exists():
        raise LineageError(f"{name} is not committed, so this lineage could not be reproduced; {remedy}")
    # Links: a dataset can have gigabytes.
    for path in sorted((home / name).iterdir()):
        link_or_copy(path, workspace / name / path.name)
    # DVC hashes the files again and writes `file`; git then shows whether these are the committed games.
    dvc(workspace, "add", "--quiet", name)
    if git(workspace, "status", "--porcelain", "--", file).strip():
        raise LineageError(f"{name} has changed since {file} was committed; {remedy}, or `dvc checkout {file}`")


def write_first_window(workspace: Path, params: Params, origin: Origin, progress: Progress | None = None) -> None:
    """Writes `state/replay` of a new lineage: the training split of the dataset, or no games.

    `progress` is called with the games that have been replayed, and all games of the split.

    Raises:
      StorageError: a file of the dataset is missing or corrupt, or has games that an import does not make, or there are
        no games for training.
    """
    files: Sequence[DatasetFile] = ()
    if params.dataset:
        from zero.data.dataset.manifest import Dataset
        from zero.data.dataset.reader import files_of, read_part

        folder = workspace / params.dataset
        origin = origin.model_copy(update={"inputs": {DATASET: sha256_file(folder / MANIFEST_FILE)}})
        dataset = read_manifest(folder, Dataset)
        files = files_of(folder, dataset, "train")
        done, total = 0, sum(file.num_games for file in files)
        for file in files:
            # Checks the hash and the games; training reads the window without replaying them.
            read_part(folder, dataset, file)
            link_or_copy(folder / file.games.path, workspace / OLD_WINDOW_DIR / file.games.path)
            done += file.num_games
            if progress:
                progress(done, total)
    write_manifest(workspace / OLD_WINDOW_DIR, first_window(files, origin))


def first_window(files: Sequence["DatasetFile"], origin: Origin) -> Window:
    """The window of a new lineage, with the games of these files of a dataset."""
    shards = tuple(
        ShardRef(
            file=file.games,
            key=file.games.sha256,  # instead of the key of a specification, which imported games do not have
            generation=0,  # which has no games of its own
            first_game=file.first_game,
            num_games=file.num_games,
            num_positions=file.num_positions,
        )
        for file in files
    )
    return Window(
        origin=origin,
        shards=tuple(WindowShard(shard=shard, skip_games=0) for shard in shards),
        num_games=sum(shard.num_games for shard in shards),
        num_positions=sum(shard.num_positions for shard in shards),
    )

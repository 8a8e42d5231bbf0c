"""Writes the missing generations of a lineage to MLflow, from git and DVC, and runs over all its generations."""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from zero.errors import LineageError
from zero.record.generation import Generation
from zero.record.ledger import line_digest, read_ledger
from zero.record.lineages import ProjectRecord
from zero.storage.files import locked
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR
from zero.storage.vcs import configure_dvc, dvc, git
from zero.tracking import open_client, pages
from zero.tracking.pages import MetricPoint, Page

if TYPE_CHECKING:
    from zero.tracking.client import Experiment

TRACKING_LOCK_DIR = "zero-track"
MoreFiles = Callable[[Generation], Mapping[str, bytes]]
"""Makes further files of a generation's run, by name."""


def backfill(home: Path, workspace: Path, uri: str, rebuild: bool = False, more_files: MoreFiles = lambda _: {}) -> str:
    """Writes each recorded generation that MLflow lacks; returns the address of the newest generation's run.

    Args:
      home: the project's folder.
      workspace: the workspace of the lineage.
      uri: address of the server.
      rebuild: first delete the runs of the generations, the ladder and the models, which are then all written again.
      more_files: makes further files of each generation's run.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      LineageError: the lineage has no generation but its first network, or the server has another history of it.
      StorageError: a file of a generation is missing or corrupt.
    """
    busy = f"another process tracks {workspace}, and would write the same runs; waiting for its end"
    with locked(workspace / ".git" / TRACKING_LOCK_DIR, busy, waits=True), ProjectRecord(home) as record:
        ledger = read_ledger(workspace)
        lineage = ledger[0].lineage
        recorded = [
            each
            for each in record.generations(lineage)
            if each.entry is not None and each.entry.kind != "start" and each.number <= ledger[-1].generation
        ]
        # Before anything is deleted: another project's lineage of this name is left alone.
        known = tracked_generations(lineage, uri, recorded)
        if rebuild:
            _erase_lineage(lineage, uri)
            known = {}
        for generation in recorded:
            if generation.number not in known:
                _fetch_networks(home, workspace, generation)
                known[generation.number] = track_generation(generation, uri, more_files(generation))
        if not known:
            raise LineageError(f"{lineage} has no generation to track; make the first one with `make generation`")
        return known[max(known)]


def tracked_generations(lineage: str, uri: str, recorded: Sequence[Generation] = ()) -> dict[int, str]:
    """Numbers of the generations that the MLflow server has completely, and the addresses of their runs.

    Raises:
      ServerError: the server does not answer.
      LineageError: the server has another history of one of the `recorded` generations.
    """
    with open_client(uri) as client:
        experiment = client.find_experiment(uri, lineage)
        if experiment is None:
            return {}
        runs = _complete_generations(experiment)
        for generation in recorded:
            if generation.number in runs:
                _check_history(experiment, generation, [runs[generation.number]], line_digest(generation.read_entry()))
        return {number: experiment.run_url(run) for number, run in runs.items()}


def track_generation(generation: Generation, uri: str, files: Mapping[str, bytes] = MappingProxyType({})) -> str:
    """Writes a generation to MLflow in place of what the server has of it; returns the address of its run.

    Of the data in DVC only `models/challenger` and `state/champion` are needed. The runs end at the time of the
    generation's commit, so that runs that are written again are equal. `files`: further files of the run, by name.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      LineageError: the server has another history of the lineage.
      StorageError: a file of the generation is missing or corrupt.
    """
    parent, children = pages.generation_page(generation), pages.stage_pages(generation)
    parent = parent._replace(files={**parent.files, **files})
    key = pages.generation_key(generation.lineage, generation.number)
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, generation.lineage, generation.recorded_ms)
        experiment.create_model()
        _check_history(experiment, generation, experiment.runs(key), parent.tags["zero.ledger"])
        # After the check above, which protects runs of another lineage with the same name.
        experiment.delete_runs(key)
        run = experiment.create_run(parent)
        for child in children:
            experiment.fill_run(experiment.create_run(child, run.info.run_id), child)
        _register(experiment, generation, run.info.run_id)
        _add_to_ladder(experiment, generation, run.info.start_time)
        experiment.fill_run(run, parent)  # last: a finished parent means that the generation is complete
        url: str = experiment.run_url(run)
        return url


def track_summary(
    uri: str, lineage: str, stage: str, note: str, points: Sequence[MetricPoint], files: Mapping[str, bytes]
) -> str:
    """Writes a run over all generations in place of the older one; returns its address.

    Args:
      uri: address of the server.
      lineage: name of the lineage.
      stage: name of the run.
      note: description of the run.
      points: its metrics; step = generation.
      files: its files by name.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    key = {"zero.lineage": lineage, "zero.stage": stage}
    page = Page(stage, key, {pages.NOTE_TAG: note}, {}, list(points), dict(sorted(files.items())), None)
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, lineage)
        run = experiment.create_run(page)
        experiment.fill_run(run, page)
        # The new run is complete before the old one is deleted, so that the server always has one.
        experiment.delete_runs(key, keep=run.info.run_id)
        url: str = experiment.run_url(run)
        return url


def comparison_url(uri: str, tags: Sequence[tuple[str, int]], stage: str) -> str:
    """Address of the page that compares the runs of a stage, for generations by lineage and number.

    Generations that are not on the server are left out.

    Raises:
      ServerError: the server does not answer.
    """
    runs, experiments = [], []
    with open_client(uri) as client:
        for lineage, number in tags:
            experiment = client.find_experiment(uri, lineage)
            found = experiment.finished_runs(pages.run_key(lineage, number, stage)) if experiment else []
            if found:
                runs.append(found[-1].info.run_id)
                experiments.append(experiment.experiment_id)
    chosen = {
        name: json.dumps(ids, separators=(",", ":")) for name, ids in (("runs", runs), ("experiments", experiments))
    }
    return f"{uri.rstrip('/')}/#/compare-runs?{urlencode(chosen)}"


def _erase_lineage(lineage: str, uri: str) -> None:
    """Deletes what `backfill` writes of a lineage: runs of generations, the ladder, logged models, registered model.

    `zero elo` and `zero evaluate` write runs too, which stay. MLflow keeps deleted runs until `mlflow gc`. Runs are
    deleted first: without them an interrupted call is repeated in full.
    """
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, lineage)
        tagged = (run.data.tags.get("zero.generation", "") for run in experiment.runs({"zero.lineage": lineage}))
        for number in sorted({int(tag) for tag in tagged if tag}):
            experiment.delete_runs(pages.generation_key(lineage, number))
        experiment.delete_runs(pages.ladder_page(lineage).key)
        experiment.delete_models()


def _complete_generations(experiment: "Experiment") -> dict[int, Any]:
    """The finished run of each generation."""
    key = {"zero.lineage": experiment.name, "zero.stage": "generation"}
    return {int(run.data.tags["zero.generation"]): run for run in experiment.finished_runs(key)}


def _check_history(experiment: "Experiment", generation: Generation, runs: Iterable[Any], ledger: str) -> None:
    """Checks that runs of a generation are of the ledger entry with this digest: others must not be deleted."""
    for run in runs:
        if run.data.tags.get("zero.ledger") != ledger:
            raise LineageError(
                f"MLflow at {experiment.uri} has another history of {generation.tag} (run {run.info.run_id}), from a "
                f"lineage with the same name; delete all runs of experiment {generation.lineage} and the model "
                f"{experiment.model} there, or give this lineage another name"
            )


def _register(experiment: "Experiment", generation: Generation, run_id: str) -> None:
    """Registers the networks of a generation and moves the aliases.

    `champion` and `challenger` follow the newest generation on the server; an older one that is written later does not
    move them.
    """
    entry = generation.read_entry()
    opponent = None
    if entry.decision is not None:  # it is registered already, unless the earlier generation is missing here
        opponent = experiment.register(pages.champion_version(generation), None)
    version = experiment.register(pages.challenger_version(generation), run_id)
    if all(number < entry.generation for number in _complete_generations(experiment)):
        is_champion = entry.champion_generation == entry.generation
        experiment.point_alias("champion", version if is_champion or opponent is None else opponent)
        if entry.kind != "rollback":  # a rollback has no challenger: the alias stays
            experiment.point_alias("challenger", version)


def _add_to_ladder(experiment: "Experiment", generation: Generation, timestamp: int) -> None:
    """Adds the points of a generation to the run of the ladder, unless they are there."""
    page = pages.ladder_page(generation.lineage)
    ladder = next(experiment.runs(page.key), None) or experiment.create_run(page)
    if generation.number not in experiment.history(ladder, pages.LADDER_CHAMPION):
        games = experiment.history(ladder, pages.LADDER_GAMES)
        earlier = max((step for step in games if step < generation.number), default=None)
        points = pages.ladder_points(generation, games[earlier] if earlier is not None else 0.0)
        experiment.log_points(ladder, points, timestamp)
    experiment.finish(ladder)


def _fetch_networks(home: Path, workspace: Path, generation: Generation) -> None:
    """Pulls the networks of a generation into DVC's cache unless they are on this machine."""
    has_challenger = generation.entry is not None and generation.entry.decision is not None
    folders = [CHALLENGER_DIR, CHAMPION_DIR] if has_challenger else [CHAMPION_DIR]
    if missing := [each for each in folders if not generation.is_here(each)]:
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            clone = Path(scratch) / "clone"
            git(workspace, "clone", "--quiet", "--no-checkout", str(workspace), str(clone))
            git(clone, "checkout", "--quiet", "--detach", f"refs/tags/{generation.tag}")
            configure_dvc(clone, home)
            dvc(clone, "pull", "--quiet", *missing)

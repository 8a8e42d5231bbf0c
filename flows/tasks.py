"""The steps of a generation as Prefect tasks: each is one call into `zero`, with retries where the risk is.

A stage whose process was killed runs again; one that fails by itself would fail again and does not. Shards and, on a
cluster, the training run as tasks on Dask before their stage: what is in the store is done, and the stage collects it.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from prefect import State, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from pydantic import ValidationError

from flows.commands import Event, run_dvc_stage, run_zero
from flows.engine import PRIORITIES, Engine, LostError, Run
from flows.reports import Progress, RecordedGeneration
from flows.workers import code_resource, play_shard, train, training_part, was_killed
from zero.config.params import Params
from zero.data.quarantine import has_missing_shards
from zero.errors import LineageError, WorkerError
from zero.stages import replay
from zero.stages.spec import ShardReceipt, ShardSpec
from zero.storage.layout import GAMES_DIR

Finished = tuple[State[Any], ...]
"""Tasks that a later one waits for. A tuple: Prefect remembers results by address, and would take a new list at the
address of an old result for that result."""
MAX_ROUNDS = 20
"""Number of times that missing work is submitted after the cluster lost it."""


class Turn(NamedTuple):
    """One generation of one lineage, and where it is made.

    It is not the result of a task: Prefect would draw an edge from that task to each task that gets it.
    """

    workspace: Path
    lineage: str
    number: int
    store_url: str

    @property
    def env(self) -> dict[str, str]:
        """Environment of its commands."""
        return {"ZERO_STORE": self.store_url}


class Specs(list[ShardSpec]):
    """Shard specifications, as the result of a task.

    Prefect remembers a plain list by its address alone, also after it is gone. Another object at that address would
    get an edge from this task in Prefect's graph. To an object of a class of ours it keeps a weak reference.
    """


@task(task_run_name="prepare", cache_policy=NO_CACHE)
def prepare(workspace: Path, lineage: str, store_url: str) -> None:
    """Checks the workspace and sets it up for its next generation."""
    run_zero(workspace, "prepare", lineage, listen=get_run_logger().info, env={"ZERO_STORE": store_url})


@task(task_run_name="plan-{stage}", cache_policy=NO_CACHE)
def plan(turn: Turn, stage: str) -> Specs:
    """The shards of a stage that the store lacks; stage `selfplay-ahead` is the self-play of the next generation."""
    logger = get_run_logger()
    arguments = ["selfplay", "--next"] if stage == "selfplay-ahead" else [stage]
    lines = run_zero(turn.workspace, "plan", *arguments, "--missing", listen=logger.info, env=turn.env)
    try:
        return Specs(ShardSpec.model_validate(line) for line in lines)
    except ValidationError:
        logger.warning(
            "the lineage's code writes other shard specifications than this project's; its stage plays alone"
        )
        return Specs()


def submit_shards(turn: Turn, stage: str, specs: Sequence[ShardSpec], engine: Engine) -> Iterator[Run]:
    """Submits each shard to the engine when its run is taken."""
    folder = turn.workspace if engine.is_local else None
    parameters = [
        {"spec": spec, "name": f"{stage}-{number:04d}", "folder": folder, "store_url": turn.store_url}
        for number, spec in enumerate(specs)
    ]
    resources = [
        {
            code_resource(spec.kind, spec.engine, spec.lock_file): 1,
            **({"GPU": 1} if spec.device.device == "cuda" else {}),
        }
        for spec in specs
    ]
    return engine.submit(play_shard, parameters, PRIORITIES[stage], resources)


def play_missing_shards(
    turn: Turn, stage: str, engine: Engine, progress: Progress, after: tuple[State[Any], ...]
) -> Finished:
    """Plays the shards of a stage that the store lacks, after these tasks; returns the tasks that played or planned.

    Raises:
      WorkerError: the cluster lost the work too often.
      ZeroError: a shard cannot be played.
    """
    for _ in range(MAX_ROUNDS):
        planned = plan(turn, stage, wait_for=after, return_state=True)
        specs = planned.result()
        if not specs:
            return (planned,)
        progress.begin(stage, sum(spec.num_games for spec in specs))
        keys = {spec.key() for spec in specs}
        try:
            runs = submit_shards(turn, stage, specs, engine)
            states: list[State[ShardReceipt]] = engine.wait(runs, partial(_show, progress, stage, keys))
        except LostError as error:
            get_run_logger().warning(f"{error}; submitting the missing shards of {stage} again")
            # The next round connects again, and looks up in the store what is missing.
            engine.close()
            continue
        for receipt in [state.result() for state in states]:
            progress.show(stage, receipt.key, receipt.num_games)
        return tuple(states)
    raise WorkerError(f"the shards of {stage} were lost {MAX_ROUNDS} times; look at the logs of the Dask workers")


def train_on_worker(turn: Turn, params: Params, engine: Engine, progress: Progress, replay: State[Any]) -> Finished:
    """Trains on a worker of the cluster after replay, unless the store has the outcome; returns the finished task.

    Raises:
      WorkerError: the cluster lost the work too often.
      ZeroError: the training failed.
    """
    logger = get_run_logger()
    steps = params.training.num_steps
    num_gpus = params.profile.training_processes if params.profile.device == "cuda" else 0
    for _ in range(MAX_ROUNDS):
        planned = run_zero(turn.workspace, "plan", "training", "--missing", listen=logger.info, env=turn.env)
        if not planned:
            return (replay,)
        progress.begin("training", steps)
        part = training_part(json.dumps(planned[0]))
        try:
            runs = _submit_training(turn, planned[0], num_gpus, engine, replay)
            states = engine.wait(runs, partial(_show, progress, "training", {part}))
        except LostError as error:
            logger.warning(f"{error}; submitting the training again")
            engine.close()
            continue
        progress.show("training", part, steps)
        return tuple(states)
    raise WorkerError(f"the training was lost {MAX_ROUNDS} times; look at the logs of the Dask workers")


@task(task_run_name="{stage}", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=1, retry_condition_fn=was_killed)
def run_stage(turn: Turn, stage: str, progress: Progress) -> None:
    """Brings one stage of the generation up to date by DVC. Games that replay quarantines are played again, once."""
    logger = get_run_logger()
    begun: set[str] = set()

    def show(name: str, done: int, total: int) -> None:
        if name not in begun:  # only now, so that a stage that is up to date keeps what its shards reported
            progress.begin(name, total)
            begun.add(name)
        progress.show(name, name, done)

    with progress.running(stage):
        try:
            run_dvc_stage(turn.workspace, stage, logger.info, show, env=turn.env)
        except LineageError as error:
            if stage != replay.STAGE or not has_missing_shards(turn.workspace, GAMES_DIR):
                raise
            logger.warning(str(error))
            run_dvc_stage(turn.workspace, stage, logger.info, show, with_earlier=True, env=turn.env)


@task(task_run_name="registry", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def registry(turn: Turn, progress: Progress) -> RecordedGeneration:
    """Records the generation: ledger, commit, tag, push, MLflow. Each of its steps can be repeated."""
    arguments = ("advance", turn.lineage, "--generation", str(turn.number), "--json")
    with progress.running("registry"):
        lines = run_zero(turn.workspace, *arguments, listen=get_run_logger().info, env=turn.env)
    return RecordedGeneration.model_validate(lines[-1])


@task(task_run_name="evaluate", cache_policy=NO_CACHE)
def evaluate(home: Path, lineage: str) -> None:
    """Computes missing held-out evaluations with the project's code. Errors are only logged."""
    logger = get_run_logger()
    try:  # the tables are too long for a log
        events = run_zero(home, "evaluate", lineage, listen=lambda _: None, env={"ZERO_PROGRESS": "json"})
        if not events:
            raise WorkerError("`zero evaluate` printed no progress")
        total = events[-1]["total"]
    except Exception as error:  # the generation is recorded; the next one computes what is missing
        logger.warning(f"held-out evaluation is incomplete: {error}; run `zero evaluate {lineage}`")
        return
    logger.info(f"{total} new evaluations; `zero evaluate {lineage}` shows them")


def _submit_training(turn: Turn, spec: Event, num_gpus: int, engine: Engine, replay: State[Any]) -> Iterator[Run]:
    code = code_resource("training", spec["origin"]["engine"], spec["lock_file"])
    resources = {code: 1, **({"GPU": num_gpus} if num_gpus else {})}
    parameters: dict[str, Any] = {"spec": json.dumps(spec), "store_url": turn.store_url}
    return engine.submit(train, [parameters], PRIORITIES["training"], [resources], after=replay)


def _show(progress: Progress, stage: str, keys: set[str], reported: dict[str, tuple[int, int]]) -> None:
    """Shows how far these parts of a stage are."""
    for key in keys & reported.keys():
        progress.show(stage, key, reported[key][0])

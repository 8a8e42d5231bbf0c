"""The steps of a generation as Prefect tasks: each is one call into `zero`, with retries where the risk is.

A shard or a stage whose process was killed is tried again; one that fails by itself would fail again and is not.
"""

from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import ValidationError

from flows.players import Players, num_players, players
from flows.processes import run_dvc_stage, run_zero, settings_of_children
from flows.reports import ProgressBar, Recorded
from zero import replay
from zero.artifacts import GenerationId
from zero.errors import LineageError, WorkerError
from zero.params import load_params
from zero.set_aside import lacks_games
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.storage import Store


def was_killed(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """True where another try may help: a process died."""
    return isinstance(state.data, WorkerError)


def receipt_name(run: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Name of the JSON file of a receipt: found again by a retry of the same run, and by no other run."""
    spec: ShardSpec = parameters["spec"]
    return f"receipt-{run.task_run.flow_run_id}-{spec.kind}-{spec.first_game}"


@task(task_run_name="prepare", cache_policy=NO_CACHE)
def prepare(workspace: Path, lineage: str) -> GenerationId:
    """Checks the workspace and sets it up for its next generation."""
    answer = run_zero(workspace, "prepare", lineage, listen=get_run_logger().info)[-1]
    return GenerationId.model_validate(answer["generation"])


@task(task_run_name="plan-{stage}", cache_policy=NO_CACHE)
def plan(workspace: Path, stage: str) -> list[ShardSpec]:
    """The shards of a stage that the store lacks."""
    logger = get_run_logger()
    lines = run_zero(workspace, "plan", stage, "--missing", listen=logger.info)
    try:
        return [ShardSpec.model_validate(line) for line in lines]
    except ValidationError:
        logger.warning(
            "the lineage's code writes other shard specifications than this project's; its stage plays alone"
        )
        return []


@task(
    task_run_name="{spec.kind}-{number:04d}",
    cache_key_fn=receipt_name,
    retries=3,
    retry_delay_seconds=1,
    retry_condition_fn=was_killed,
    persist_result=True,
    result_serializer="json",
)
def play_shard(spec: ShardSpec, number: int, team: Players, bar: ProgressBar) -> ShardReceipt:
    """Plays one shard into the store."""
    receipt = team.play(spec, lambda done, _: bar.show(spec.key(), done))
    bar.show(spec.key(), spec.num_games)
    get_run_logger().info(
        f"{receipt.num_games} games in {receipt.seconds:.1f} s, {receipt.num_evaluations} evaluations, "
        f"shard {receipt.key[:12]} is {receipt.sha256[:12]}"
    )
    return receipt


def play_missing_shards(workspace: Path, turn: GenerationId, stage: str, store: Store) -> list[ShardReceipt]:
    """Plays the shards of a stage that the store lacks, as many at once as there are players."""
    specs = plan(workspace, stage)
    if not specs:
        return []
    params = load_params(workspace)
    bar = ProgressBar(turn.lineage, stage, "games", sum(spec.num_games for spec in specs), get_run_logger().info)
    num_at_once = num_players(params, len(specs))
    runner: ThreadPoolTaskRunner[ShardReceipt] = ThreadPoolTaskRunner(max_workers=num_at_once)
    with runner, players(workspace, params, store, num_at_once) as team:
        runs = [
            runner.submit(play_shard, {"spec": spec, "number": number, "team": team, "bar": bar})
            for number, spec in enumerate(specs)
        ]
        return [run.result() for run in runs]


@task(task_run_name="{stage}", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=1, retry_condition_fn=was_killed)
def run_stage(workspace: Path, turn: GenerationId, stage: str, unit: str = "") -> None:
    """Brings one stage of the generation up to date by DVC. Games that replay sets aside are played again, once."""
    logger = get_run_logger()
    bars: list[ProgressBar] = []

    def progress(done: int, total: int) -> None:
        if unit and not bars:
            bars.append(ProgressBar(turn.lineage, stage, unit, total, logger.info))
        for bar in bars:
            bar.show(stage, done)

    try:
        run_dvc_stage(workspace, stage, logger.info, progress)
    except LineageError as error:
        if stage != replay.STAGE or not lacks_games(workspace, replay.GAMES_DIR):
            raise
        logger.warning(str(error))
        run_dvc_stage(workspace, stage, logger.info, progress, alone=False)


@task(task_run_name="registry", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def registry(workspace: Path, turn: GenerationId) -> Recorded:
    """Records the generation: ledger, commit, tag, push, MLflow. Each of its steps can be repeated."""
    words = ("advance", turn.lineage, "--generation", str(turn.number), "--json")
    return Recorded.model_validate(run_zero(workspace, *words, listen=get_run_logger().info)[-1])


@task(task_run_name="yardsticks", cache_policy=NO_CACHE)
def yardsticks(home: Path, lineage: str) -> None:
    """Fills in the lineage's yardsticks by the project's code. They are no part of the record: trouble is a warning."""
    logger = get_run_logger()
    try:
        with settings_of_children(ZERO_PROGRESS="json"):
            told = run_zero(home, "yardsticks", lineage, listen=lambda line: None)  # a table a generation is too much
    except Exception as error:  # whatever it is, the generation is recorded, and the next one fills in what is missing
        logger.warning(f"not all yardsticks are there: {error}; fill them in with `zero yardsticks {lineage}`")
        return
    logger.info(f"{told[-1]['total']} yardsticks more; `zero yardsticks {lineage}` shows them")

"""The steps of a generation as Prefect tasks: each is one call into `zero`, with retries where the risk is.

On this machine a shard or a stage whose process was killed is tried again; one that fails by itself would fail again
and is not. On the pool a run that fails, however it does, is tried again: another worker may do better.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run, task_run
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import ValidationError

from flows import pool
from flows.players import Interruption, Players, PoolPlayers, players
from flows.processes import run_dvc_stage, run_zero, settings_of_children
from flows.reports import ProgressBar, Recorded
from zero.config.params import ExecutorKind, load_params
from zero.config.settings import home_dir
from zero.data.quarantine import has_missing_shards
from zero.errors import LineageError, WorkerError
from zero.shards.executor import num_local_processes
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.stages import replay
from zero.storage.layout import GAMES_DIR
from zero.storage.manifests import GenerationId
from zero.storage.store import Store

TRAIN_DEPLOYMENT = "zero-train/zero-train"
POOL_RETRIES = 5
"""Further tries of a run on the pool, besides those that a worker refuses, for its code or its key (flows/pool.py)."""


def was_killed(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """True where another try may help: a process died."""
    return isinstance(state.data, WorkerError)


def receipt_name(run: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Name of the JSON file of a receipt: found again by a retry of the same run, and by no other run."""
    spec: ShardSpec = parameters["spec"]
    return f"receipt-{run.task_run.flow_run_id}-{_name(spec)}"


@task(task_run_name="prepare", cache_policy=NO_CACHE)
def prepare(workspace: Path, lineage: str) -> GenerationId:
    """Checks the workspace and sets it up for its next generation."""
    answer = run_zero(workspace, "prepare", lineage, listen=get_run_logger().info)[-1]
    return GenerationId.model_validate(answer["generation"])


@task(task_run_name="plan-{stage}", cache_policy=NO_CACHE)
def plan(workspace: Path, stage: str, ahead: bool = False) -> list[ShardSpec]:
    """The shards of a stage that the store lacks; `ahead`: of the next generation."""
    logger = get_run_logger()
    words = ("plan", stage, "--missing", *(("--next",) if ahead else ()))
    lines = run_zero(workspace, *words, listen=logger.info)
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


@task(
    task_run_name="{name}",
    cache_policy=NO_CACHE,
    retries=POOL_RETRIES,
    retry_delay_seconds=1,
    retry_condition_fn=was_killed,
)
def play_run(specs: list[ShardSpec], name: str, team: PoolPlayers, bar: ProgressBar) -> list[ShardReceipt]:
    """Plays shards on one worker of the pool; where that fails, on another."""
    receipts = team.play(specs, _key(_name(specs[0])))
    for receipt in receipts:
        bar.show(receipt.key, receipt.num_games)
    evaluations = sum(receipt.num_evaluations for receipt in receipts)
    workers = ", ".join(sorted({receipt.worker for receipt in receipts}))
    get_run_logger().info(f"{sum(spec.num_games for spec in specs)} games by {workers}, {evaluations} evaluations")
    return receipts


def play_missing_shards(
    workspace: Path,
    turn: GenerationId,
    stage: str,
    store: Store,
    executor: ExecutorKind,
    ahead: Interruption | None = None,
) -> list[ShardReceipt]:
    """Plays the shards of a stage that the store lacks, as many at once as there are players.

    Args:
      workspace: of the lineage.
      turn: the generation.
      stage: `selfplay` or `gating`.
      store: where they go.
      executor: who plays.
      ahead: given, the next generation's are played, until it interrupts them.
    """
    specs = plan(workspace, stage, ahead is not None)
    interruption = ahead or Interruption()
    if not specs:
        return []
    shown = f"{stage}-ahead" if ahead else stage
    if executor == "pool":
        owner = pool.owner_of(home_dir(), turn.lineage)
        return play_in_pool(specs, turn, shown, store, interruption, owner)
    params = load_params(workspace)
    bar = _bar(specs, turn, shown)
    num_at_once = min(num_local_processes(params), len(specs))
    runner: ThreadPoolTaskRunner[ShardReceipt] = ThreadPoolTaskRunner(max_workers=num_at_once)
    with runner, players(workspace, params, store, num_at_once) as team:
        interruption.ends(team.give_up)
        runs = [
            runner.submit(play_shard, {"spec": spec, "number": number, "team": team, "bar": bar})
            for number, spec in enumerate(specs)
        ]
        return [run.result() for run in runs]


def play_in_pool(
    specs: list[ShardSpec], turn: GenerationId, stage: str, store: Store, interruption: Interruption, owner: str
) -> list[ShardReceipt]:
    """Plays shards by runs on the pool's workers, as many at once as there are meanwhile.

    `stage` is what people read, `owner` the tag of the runs.

    Raises:
      WorkerError: a run has failed in all its tries; the others are cancelled.
    """
    logger = get_run_logger()
    bar = _bar(specs, turn, stage)
    runner: ThreadPoolTaskRunner[list[ShardReceipt]] = ThreadPoolTaskRunner(max_workers=len(specs))
    ended: SimpleQueue[PrefectFuture[list[ShardReceipt]]] = SimpleQueue()
    left, playing, receipts = list(specs), 0, list[ShardReceipt]()
    with runner, pool.Runs(owner, logger.warning) as asked:
        interruption.ends(asked.give_up)
        team = PoolPlayers(store, asked)
        while left or playing:
            num_places = asked.num_places()
            while left and playing < pool.num_at_once(num_places):
                size = pool.shards_a_run(len(left), num_places, playing, team.seconds_a_shard())
                some, left = left[:size], left[size:]
                name = f"{stage}-{some[0].first_game}"
                run = runner.submit(play_run, {"specs": some, "name": name, "team": team, "bar": bar})
                run.add_done_callback(ended.put)
                playing += 1
            with contextlib.suppress(Empty):
                receipts += ended.get(timeout=pool.WIDTH_SECONDS).result()
                playing -= 1
    return receipts


@task(task_run_name="selfplay-ahead", cache_policy=NO_CACHE)
def play_ahead(
    workspace: Path, turn: GenerationId, store: Store, executor: ExecutorKind, interruption: Interruption
) -> None:
    """Plays the next generation's games into the store."""
    play_missing_shards(workspace, turn, "selfplay", store, executor, interruption)


@contextlib.contextmanager
def playing_ahead(workspace: Path, turn: GenerationId, store: Store, executor: ExecutorKind) -> Iterator[None]:
    """The next generation's games are played meanwhile, where the parameters say so; leaving waits for their end.

    What is not played then, for whatever reason, the next generation plays itself.
    """
    if not load_params(workspace).selfplay.overlap:
        yield
        return
    interruption = Interruption()
    run = play_ahead.submit(workspace, turn, store, executor, interruption)
    try:
        yield
        run.wait()  # may take longest of all, and is ended by a signal as the rest is
    except BaseException:
        interruption.interrupt()
        raise
    finally:
        run.wait()
    if not run.state.is_completed():
        get_run_logger().warning(f"not all games of the next generation were played: {run.state.message}")


def _name(spec: ShardSpec) -> str:
    """A shard among all of a run, which may be of two generations."""
    return f"{spec.generation}-{spec.kind}-{spec.first_game}"


def _key(name: str) -> str:
    """Names a try of a run on the pool; a flow run that a person has set going again asks for new ones."""
    return f"{flow_run.id}-{flow_run.run_count}-{name}-{task_run.get_run_count()}"


def _bar(specs: list[ShardSpec], turn: GenerationId, stage: str) -> ProgressBar:
    total = sum(spec.num_games for spec in specs)
    return ProgressBar(turn.lineage, stage, "games", total, get_run_logger().info)


@task(
    task_run_name="train-in-pool",
    cache_policy=NO_CACHE,
    retries=POOL_RETRIES,
    retry_delay_seconds=1,
    retry_condition_fn=was_killed,
)
def train_in_pool(workspace: Path, turn: GenerationId) -> None:
    """Has the training of a generation done on a worker of the pool, unless the store has its outcome."""
    logger = get_run_logger()
    for spec in run_zero(workspace, "plan", "training", "--missing", listen=logger.info):
        with pool.Runs(pool.owner_of(home_dir(), turn.lineage), logger.warning) as asked:
            name = asked.run(TRAIN_DEPLOYMENT, {"spec": spec}, "training", _key("training"))
        logger.info(f"trained by run {name}")


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
        if stage != replay.STAGE or not has_missing_shards(workspace, GAMES_DIR):
            raise
        logger.warning(str(error))
        run_dvc_stage(workspace, stage, logger.info, progress, alone=False)


@task(task_run_name="registry", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def registry(workspace: Path, turn: GenerationId) -> Recorded:
    """Records the generation: ledger, commit, tag, push, MLflow. Each of its steps can be repeated."""
    words = ("advance", turn.lineage, "--generation", str(turn.number), "--json")
    return Recorded.model_validate(run_zero(workspace, *words, listen=get_run_logger().info)[-1])


@task(task_run_name="evaluate", cache_policy=NO_CACHE)
def evaluate(home: Path, lineage: str) -> None:
    """Computes missing held-out evaluations with the project's code. Errors are only logged."""
    logger = get_run_logger()
    try:
        with settings_of_children(ZERO_PROGRESS="json"):
            events = run_zero(home, "evaluate", lineage, listen=lambda line: None)  # the tables are too long for a log
    except Exception as error:  # the generation is recorded; the next one computes what is missing
        logger.warning(f"held-out evaluation is incomplete: {error}; run `zero evaluate {lineage}`")
        return
    logger.info(f"{events[-1]['total']} new evaluations; `zero evaluate {lineage}` shows them")

"""The flow `zero-generation`: one turn of the loop, from the champion's games to the recorded decision."""

import contextlib
from collections.abc import Iterator
from typing import TypeVar
from uuid import UUID

from prefect import State, flow, get_client, get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled

from flows.engine import Engine
from flows.reports import Progress, report_generation, summary, tag_run
from flows.tasks import (
    Finished,
    Turn,
    evaluate,
    plan,
    play_missing_shards,
    prepare,
    registry,
    run_stage,
    submit_shards,
    train_on_worker,
)
from zero.config.params import ExecutorKind, Params, load_params
from zero.config.settings import STATE_FOLDER, home_dir
from zero.errors import LineageError, ZeroError
from zero.lineage.workspace import current_generation, writer_lock
from zero.network.health import recorded_health
from zero.record.costs import read_note
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.storage.files import read_manifest
from zero.storage.layout import GATING_METRICS, TRAINING_METRICS
from zero.storage.manifests import PromotionDecision
from zero.storage.store import open_store

ResultT = TypeVar("ResultT")


def run_name() -> str:
    """Name of a run in Prefect: the tag it is about to make."""
    lineage = str(flow_run.parameters["lineage"])
    try:
        return generation_tag(lineage, read_ledger(find_workspace(home_dir(), lineage))[-1].generation + 1)
    except ZeroError:
        return lineage


@flow(name="zero-generation", flow_run_name=run_name, persist_result=True, result_serializer="json")
def generation(lineage: str = "go9", executor: ExecutorKind | None = None) -> PromotionDecision:
    """Makes one generation of a lineage and records it. `executor` replaces the one of params.yaml."""
    workspace = find_workspace(home_dir(), lineage)
    with writer_lock(workspace), open_store(workspace) as store, Progress(lineage, get_run_logger().info) as progress:
        tag_run(lineage)
        prepared = finished(prepare(workspace, lineage, store.url, return_state=True))
        turn = Turn(workspace, lineage, current_generation(workspace).number, store.url)
        params = load_params(workspace)
        with open_engine(params, executor) as engine:
            games = play_missing_shards(turn, "selfplay", engine, progress, after=(prepared,))
            selfplay = stage(turn, "selfplay", progress, after=games)
            with playing_ahead(turn, params, engine, after=(selfplay,)):
                replay = stage(turn, "replay", progress, after=(selfplay,))
                trained = (replay,) if engine.is_local else train_on_worker(turn, params, engine, progress, replay)
                training = stage(turn, "training", progress, after=trained)
                warn_of_health(turn)
                match = play_missing_shards(turn, "gating", engine, progress, after=(training,))
                gating = stage(turn, "gating", progress, after=match)
                verification = stage(turn, "verification", progress, after=(gating,))
        decision = read_manifest(workspace, PromotionDecision, GATING_METRICS)
        registered = finished(registry(turn, progress, wait_for=(verification,), return_state=True))
    recorded = registered.result()
    report_generation(decision, recorded, read_note(workspace, lineage, recorded.tag))
    tag_run(lineage, "promoted" if decision.promoted else "refused")
    for line in summary(decision, recorded):
        get_run_logger().info(line)
    for line in recorded.warnings:
        get_run_logger().warning(line)
    # After the lock is released: evaluation only reads the record.
    evaluate(home_dir(), lineage, wait_for=(registered,))
    return decision


def stage(turn: Turn, name: str, progress: Progress, after: Finished) -> State[None]:
    """Runs a stage after the tasks whose data it reads, as Prefect's graph shows; raises what the stage raises."""
    stop_if_cancelled()
    return finished(run_stage(turn, name, progress, wait_for=after, return_state=True))


def stop_if_cancelled() -> None:
    """Ends the run if it was cancelled in Prefect: a campaign's generation has no process of its own that Prefect ends.

    Raises:
      LineageError: it was cancelled.
    """
    client = get_client(sync_client=True)
    run = client.read_flow_run(UUID(flow_run.id))
    if run.state is not None and run.state.is_cancelling():
        client.set_flow_run_state(run.id, Cancelled(), force=True)  # the only state after which it can end
        raise LineageError(f"{run.name} was cancelled in Prefect; the next run resumes it")


def finished(state: State[ResultT]) -> State[ResultT]:
    """The state of a task, for which a later task can wait; raises what the task raised."""
    state.result()
    return state


def open_engine(params: Params, executor: ExecutorKind | None) -> Engine:
    """The engine that the parameters choose, or that of another kind."""
    chosen = params.executor.model_copy(update={"kind": executor} if executor else {})
    return Engine(params, chosen, home_dir() / STATE_FOLDER / "dask", get_run_logger().warning)


@contextlib.contextmanager
def playing_ahead(turn: Turn, params: Params, engine: Engine, after: Finished) -> Iterator[None]:
    """Plays the next generation's games during the context, if `selfplay.overlap` is set.

    The next generation plays the games that are still missing.
    """
    if not params.selfplay.overlap:
        yield
        return
    # With the lowest priority (`flows.engine.PRIORITIES`), so that this generation's work goes first.
    runs = list(submit_shards(turn, "selfplay-ahead", plan(turn, "selfplay-ahead", wait_for=after), engine))
    try:
        yield
    except BaseException:
        engine.cancel(runs)
        raise
    try:
        engine.wait(runs)
    except Exception as error:
        get_run_logger().warning(f"not all games of the next generation were played: {error}")


def warn_of_health(turn: Turn) -> None:
    """Logs a warning for each problem that the health checks found, before the match is played."""
    health = recorded_health((turn.workspace / TRAINING_METRICS).read_bytes(), TRAINING_METRICS)
    for line in health.lines() if health else ():
        get_run_logger().warning(f"training of {generation_tag(turn.lineage, turn.number)}: {line}")

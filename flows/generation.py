"""The flow `zero-generation`: one turn of the loop, from the champion's games to the recorded decision."""

import contextlib
from collections.abc import Iterator
from typing import Any

from prefect import State, flow, get_run_logger
from prefect.runtime import flow_run

from flows.engine import Engine
from flows.reports import report_generation, summary
from flows.tasks import (
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
from zero.errors import ZeroError
from zero.lineage.workspace import writer_lock
from zero.network.health import recorded_health
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.storage.files import read_manifest
from zero.storage.layout import GATING_METRICS, TRAINING_METRICS
from zero.storage.manifests import PromotionDecision
from zero.storage.store import open_store


def run_name() -> str:
    """Name of a run in Prefect: the tag it is about to make."""
    lineage = str(flow_run.parameters["lineage"])
    try:
        return generation_tag(lineage, read_ledger(find_workspace(home_dir(), lineage))[-1].generation + 1)
    except ZeroError:
        return lineage


@flow(name="zero-generation", flow_run_name=run_name, persist_result=True, result_serializer="json")
def generation(lineage: str = "go9", executor: ExecutorKind | None = None) -> PromotionDecision:
    """One turn of the loop: play, learn, and let the better player stay; `executor` instead of that of params.yaml."""
    workspace = find_workspace(home_dir(), lineage)
    with writer_lock(workspace), open_store(workspace) as store:
        turn = prepare(workspace, lineage, store.url)
        params = load_params(workspace)
        with open_engine(params, executor) as engine:
            shards = play_missing_shards(turn, "selfplay", engine)
            selfplay = stage(turn, "selfplay", after=shards)
            with playing_ahead(turn, params, engine):
                replay = stage(turn, "replay", after=[selfplay])
                trained = [] if engine.is_local else train_on_worker(turn, params, engine)
                training = stage(turn, "training", "steps", after=[replay, *trained])
                warn_of_health(turn)
                matches = play_missing_shards(turn, "gating", engine)
                gating = stage(turn, "gating", after=[training, *matches])
                verification = stage(turn, "verification", "games", after=[gating])
        decision = read_manifest(workspace, PromotionDecision, GATING_METRICS)
        recorded = registry(turn, wait_for=[verification])
    report_generation(decision, recorded)
    for line in summary(decision, recorded):
        get_run_logger().info(line)
    for line in recorded.warnings:
        get_run_logger().warning(line)
    evaluate(home_dir(), lineage)
    return decision


def stage(turn: Turn, name: str, unit: str = "", after: list[Any] = []) -> State[str]:  # noqa: B006 - not changed
    """Runs a stage after the tasks whose data it reads, as Prefect's graph shows; raises what the stage raises."""
    state = run_stage(turn, name, unit, wait_for=after, return_state=True)
    state.result()
    return state


def open_engine(params: Params, executor: ExecutorKind | None) -> Engine:
    """The engine that the parameters choose, or that of another kind."""
    chosen = params.executor.model_copy(update={"kind": executor} if executor else {})
    return Engine(params, chosen, home_dir() / STATE_FOLDER / "dask", get_run_logger().warning)


@contextlib.contextmanager
def playing_ahead(turn: Turn, params: Params, engine: Engine) -> Iterator[None]:
    """Plays the next generation's games meanwhile, if `selfplay.overlap` is set; the next one plays what is missing."""
    if not params.selfplay.overlap:
        yield
        return
    # With the lowest priority (`flows.engine.PRIORITIES`), so that this generation's work goes first.
    runs = submit_shards(turn, "selfplay-ahead", plan(turn, "selfplay-ahead"), engine)
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

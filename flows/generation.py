"""The flow `zero-generation`: one turn of the loop, from the champion's games to the recorded decision."""

from pathlib import Path

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.orphans import end_with_known_worker
from flows.pool import end_leftovers, owner_of
from flows.processes import one_leash, settings_of_children
from flows.reports import report_generation, summary
from flows.tasks import evaluate, play_missing_shards, playing_ahead, prepare, registry, run_stage, train_in_pool
from zero.config.params import ExecutorKind, load_params
from zero.config.settings import home_dir
from zero.errors import ZeroError
from zero.lineage.workspace import writer_lock
from zero.network.health import recorded_health
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.storage.files import read_manifest
from zero.storage.layout import GATING_METRICS, TRAINING_METRICS
from zero.storage.manifests import GenerationId, PromotionDecision
from zero.storage.store import open_store

SHARED_MODULES = (
    "zero.cli",
    "zero.stages.gating",
    "zero.lineage",
    "zero.lineage.registry",
    "zero.stages.selfplay",
    "zero.stages.remote_training",
    "dvc.cli.parser",
    "dvc.repo.reproduce",
    "dvc.stage.run",
    "dvc_data.index",
    "dvc_http",
)
"""What a generation's commands import, each of them several times."""


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
    end_with_known_worker()
    home = home_dir()
    workspace = find_workspace(home, lineage)
    with (
        writer_lock(workspace),
        open_store(workspace) as store,
        settings_of_children(ZERO_STORE=store.url, ZERO_PROGRESS="json"),
        one_leash(workspace, *SHARED_MODULES),
    ):
        turn = prepare(workspace, lineage)
        kind = executor or load_params(workspace).executor.kind
        if kind == "pool" and (left := end_leftovers(owner_of(home, lineage))):
            get_run_logger().warning(f"{left} runs were left by a generation that was killed; they are cancelled")
        play_missing_shards(workspace, turn, "selfplay", store, kind)
        run_stage(workspace, turn, "selfplay")
        with playing_ahead(workspace, turn, store, kind):
            run_stage(workspace, turn, "replay")
            if kind == "pool":
                train_in_pool(workspace, turn)
            run_stage(workspace, turn, "training", unit="steps")
            warn_of_health(workspace, turn)
            play_missing_shards(workspace, turn, "gating", store, kind)
            run_stage(workspace, turn, "gating")
            run_stage(workspace, turn, "verification", unit="games")
        decision = read_manifest(workspace, PromotionDecision, GATING_METRICS)
        recorded = registry(workspace, turn)
    report_generation(decision, recorded)
    for line in summary(decision, recorded):
        get_run_logger().info(line)
    for line in recorded.warnings:
        get_run_logger().warning(line)
    evaluate(home, lineage)
    return decision


def warn_of_health(workspace: Path, turn: GenerationId) -> None:
    """Logs a warning for each thing that the health checks found, before the match is played."""
    health = recorded_health((workspace / TRAINING_METRICS).read_bytes(), TRAINING_METRICS)
    for line in health.lines() if health else ():
        get_run_logger().warning(f"training of {generation_tag(turn.lineage, turn.number)}: {line}")

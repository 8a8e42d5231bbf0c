"""The flow `zero-train`: a training on a machine with this code that reaches the store, on all its GPUs."""

from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.orphans import end_when_given_up, end_with_worker, refusing_slowly, understood
from flows.reports import ProgressBar
from zero.config.settings import STATE_FOLDER, home_dir
from zero.stages.remote_training import TrainingSpec, train_into_store
from zero.storage.store import open_store


def run_name() -> str:
    """Name of a run in Prefect."""
    origin = flow_run.parameters["spec"].get("origin", {})
    return f"training-{origin.get('lineage', '')}-{origin.get('generation', 0):04d}"


@flow(name="zero-train", flow_run_name=run_name)
def train(spec: dict[str, Any]) -> None:
    """Trains from what lies in the store and puts the challenger there; a second try here goes on from a checkpoint.

    What is asked is a `TrainingSpec`, read here and not by Prefect's engine: a worker whose code has another refuses.
    """
    end_with_worker()
    end_when_given_up()
    logger = get_run_logger()
    home = home_dir()
    bars: list[ProgressBar] = []
    with refusing_slowly(), open_store(home) as store:
        wanted = understood(TrainingSpec, spec)

        def show(done: int, total: int) -> None:
            if not bars:
                bars.append(ProgressBar(wanted.origin.lineage, "training", "steps", total, logger.info))
            bars[0].show("training", done)

        train_into_store(wanted, store, home / STATE_FOLDER / "trainings" / wanted.key(), show)

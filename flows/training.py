"""The flow `zero-train`: a training on a machine with this code that reaches the store, on all its GPUs."""

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from flows.orphans import alone_on_gpu, end_with_worker, refusing_slowly
from flows.reports import ProgressBar
from zero.settings import STATE_FOLDER, home_dir, open_store
from zero.training_store import TrainingSpec, train_into_store


def run_name() -> str:
    """Name of a run in Prefect."""
    spec = TrainingSpec.model_validate(flow_run.parameters["spec"])
    return f"training-{spec.origin.lineage}-{spec.origin.generation:04d}"


@flow(name="zero-train", flow_run_name=run_name)
def train(spec: TrainingSpec) -> None:
    """Trains from what lies in the store and puts the challenger there; a second try here goes on from a checkpoint."""
    end_with_worker()
    logger = get_run_logger()
    home = home_dir()
    bars: list[ProgressBar] = []

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(ProgressBar(spec.origin.lineage, "training", "steps", total, logger.info))
        bars[0].show("training", done)

    with refusing_slowly(), alone_on_gpu(), open_store(home) as store:
        train_into_store(spec, store, home / STATE_FOLDER / "trainings" / spec.key(), show)

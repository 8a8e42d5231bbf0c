"""The flow `zero-campaign`: generations of a lineage, one after the other."""

from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from flows.generation import generation
from zero.config.params import ExecutorKind
from zero.config.settings import home_dir
from zero.lineage.workspace import clear_stop, stop_requested, writer_lock
from zero.record.ledger import find_workspace
from zero.storage.manifests import PromotionDecision


@flow(
    name="zero-campaign",
    flow_run_name="{lineage}: {num_generations} generations",
    persist_result=True,
    result_serializer="json",
)
def campaign(
    lineage: str = "go9", num_generations: Annotated[int, Field(ge=1)] = 3, executor: ExecutorKind | None = None
) -> list[PromotionDecision]:
    """Makes `num_generations` generations, or fewer after `zero stop`; a generation without a promotion counts too."""
    workspace = find_workspace(home_dir(), lineage)
    decisions: list[PromotionDecision] = []
    with writer_lock(workspace):  # no other flow begins between two generations, or withdraws a request to stop
        clear_stop(workspace)
        while len(decisions) < num_generations and not stop_requested(workspace):
            decisions.append(generation(lineage, executor))
        clear_stop(workspace)
    get_run_logger().info(f"{len(decisions)} of {num_generations} generations of {lineage} made")
    return decisions

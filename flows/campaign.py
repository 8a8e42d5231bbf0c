"""The flow `zero-campaign`: generations of a lineage, one after the other."""

import time
from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from flows.generation import generation
from zero.config.params import ExecutorKind
from zero.config.settings import home_dir
from zero.lineage.workspace import clear_stop, stop_requested, writer_lock
from zero.record.ledger import find_workspace, generation_tag
from zero.record.texts import decision_sentence
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
    workspace, log = find_workspace(home_dir(), lineage), get_run_logger().info
    decisions: list[PromotionDecision] = []
    started = time.monotonic()
    with writer_lock(workspace):  # no other flow begins between two generations, or withdraws a request to stop
        clear_stop(workspace)
        while len(decisions) < num_generations and not stop_requested(workspace):
            log(f"the next generation ({len(decisions) + 1} of {num_generations}) begins; Prefect shows its progress")
            made = generation(lineage, executor)
            decisions.append(made)
            log(f"{generation_tag(lineage, made.generation)}: {decision_sentence(made)}")
            num_left = num_generations - len(decisions)
            if num_left and not stop_requested(workspace):
                minutes = (time.monotonic() - started) / len(decisions) * num_left / 60
                stop = f"`zero stop {lineage}` ends it earlier"
                log(f"left: {num_left} of {num_generations}, about {minutes:.0f} min; {stop}")
        clear_stop(workspace)
    log(f"{len(decisions)} of {num_generations} generations of {lineage} made")
    return decisions

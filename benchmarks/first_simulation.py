"""What a process does up to its first simulation: `python -m benchmarks.first_simulation PARAMS [WEIGHTS]`.

PARAMS is a JSON object: `params`, and `settings`, the values of its `PlaySettings`. Without weights the game is judged
by an evaluator that knows nothing. With a weight file it is judged by that network, as a worker or an engine has it:
PyTorch is imported, the weights are loaded and folded.
"""

import json
import sys
from pathlib import Path

import numpy as np

from zero.config.params import Params
from zero.games.rules import rules_of
from zero.play.lockstep_games import advance
from zero.play.slots import PlaySettings, new_batch, new_records, new_slots
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import stream_of


def main(arguments: list[str]) -> None:
    """Does one simulation of one game and says how many it has done."""
    given = json.loads(arguments[0])
    params, settings = Params.model_validate(given["params"]), PlaySettings(*given["settings"])
    evaluator: Evaluator = UniformEvaluator()
    if len(arguments) > 1:
        from zero.network.profile import prepare_torch

        prepare_torch(params.profile, params.profile.selfplay_threads)
        from zero.network.inference import new_evaluator

        evaluator = new_evaluator(Path(arguments[1]).read_bytes(), params.profile)
    rules = rules_of(params.game)
    slots, batch = new_slots(rules, settings, 1, params.search.max_nodes), new_batch(rules, 1, 1)
    records = new_records(rules, np.stack([stream_of(0, 0, "bench", 0)]))
    while (done := int(slots.trees.node_visits[0, 0])) == 0:
        advance(rules, settings, slots, batch, records)
        evaluator.evaluate(batch.planes[0], batch.prior[0], batch.value[0])
    print(f"simulations: {done}")


if __name__ == "__main__":
    main(sys.argv[1:])

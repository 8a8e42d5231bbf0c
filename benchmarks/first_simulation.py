"""What a process does up to its first simulation, and no more: `python -m benchmarks.first_simulation PARAMS [WEIGHTS]`.

Without weights the game is judged by an evaluator that knows nothing. With a weight file it is judged by that network, as
a worker or an engine has it: PyTorch is imported, the weights are loaded and folded.
"""

import sys
from pathlib import Path

import numpy as np

from zero.bench import selfplay_settings
from zero.games.rules import rules_of
from zero.params import Params
from zero.play.boards import advance
from zero.play.slots import new_batch, new_records, new_slots
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import stream_of


def main(arguments: list[str]) -> None:
    """Does one simulation of one game and says how many it has done."""
    params = Params.model_validate_json(arguments[0])
    evaluator: Evaluator = UniformEvaluator()
    if len(arguments) > 1:
        from zero.bench import new_evaluator

        evaluator = new_evaluator(Path(arguments[1]).read_bytes(), params.profile)
    rules, settings = rules_of(params.game), selfplay_settings(params)
    slots, batch = new_slots(rules, 1, 1, params.search.max_nodes), new_batch(rules, 1, 1)
    records = new_records(rules, np.stack([stream_of(0, 0, "bench", 0)]))
    while (done := slots.trees.node_visits[0, 0]) == 0:
        advance(rules, settings, slots, batch, records)
        evaluator.evaluate(batch.planes[0], batch.prior[0], batch.value[0])
    print(f"simulations: {done}")


if __name__ == "__main__":
    main(sys.argv[1:])

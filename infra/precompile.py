"""Compiles the kernels that a generation and a game against a player need: `python -m infra.precompile`.

`infra/setup` or `.ci/run` runs it after an installation, so that the first generation and the first game need not wait.
Without it, and after a change of a kernel, each kernel compiles on its first use.
"""

import numpy as np

from zero.config.params import PlayParams, SearchParams
from zero.data.adjudication import adjudicate
from zero.data.records import read_records, write_records
from zero.data.samples import Sampler, sample_games
from zero.games.rules import go_rules
from zero.play.batched_games import play_games
from zero.play.single_game import SingleGamePlayer
from zero.play.slots import play_settings
from zero.players.network_player import NetworkPlayer
from zero.players.player import PlayerId
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of


def main() -> None:
    """Plays, checks and samples a game of Go on a board of nine points. All games share their kernels."""
    rules, search, evaluator = go_rules(3, 3, 0.5), SearchParams(), UniformEvaluator()

    settings = play_settings(search, PlayParams(num_simulations=4, fast_simulations=1))
    streams = np.stack([stream_of(1, 1, "selfplay", 0)])
    played = play_games(rules, settings, [evaluator], ["uniform"], streams, num_slots=1, max_nodes=16)

    games = read_records(write_records(played.games), "the game")
    adjudicate(rules, games)
    with Sampler(rules, sample_games(games), seed=1, generation=1, batch_size=1, random_symmetry=True) as sampler:
        next(sampler.batches(0, 1))

    identity = PlayerId(name="uniform", kind="network", settings={})
    in_a_match = NetworkPlayer(identity, rules, evaluator, search, num_simulations=4, num_slots=1, seed=1)
    in_a_match.begin([0])
    in_a_match.choose([0])
    in_a_match.play(0, 0)
    in_a_session = SingleGamePlayer(rules, evaluator, search, num_simulations=4, max_nodes=16)
    in_a_session.search()
    in_a_session.play(0)


if __name__ == "__main__":
    main()

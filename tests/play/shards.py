"""Small shards for the tests of `zero.play`."""

import hashlib
from collections.abc import Sequence

import numpy as np

from tests.games.kernel_game import KernelGame
from tests.search.evaluators import HashEvaluator
from zero.config.params import PlayParams, SearchParams
from zero.games.position import Rules
from zero.games.rules import go_rules
from zero.play.batched_games import PlayedGames, play_games
from zero.play.slots import PlaySettings, play_settings
from zero.search.evaluator import Evaluator
from zero.search.streams import stream_of
from zero.storage.manifests import GameRecord

SEED, GENERATION = 1, 2
GO4, GO5 = go_rules(4, 4, 0.5), go_rules(5, 5, 0.5)
NUM_GAMES = 10

SELFPLAY = play_settings(
    SearchParams(considered_actions=8), PlayParams(num_simulations=16, temperature_moves=6, fast_simulations=4)
)
MATCH = SELFPLAY._replace(num_players=2, temperature_moves=0, dirichlet_concentration=0.0, dirichlet_fraction=0.0)


def phase_of(settings: PlaySettings) -> str:
    return "gating" if settings.num_players == 2 else "selfplay"


def play_shard(
    rules: Rules,
    settings: PlaySettings,
    evaluators: Sequence[Evaluator],
    num_games: int,
    num_slots: int = 8,
    max_nodes: int = 40,
    progress=None,
    search_threads: int = 1,
    half_batches: bool = False,
    stop_after: int = 0,
) -> PlayedGames:
    """Plays a shard; the players are called `"0"` and `"1"`."""
    games = range(settings.first_game, settings.first_game + num_games)
    streams = np.stack([stream_of(SEED, GENERATION, phase_of(settings), game) for game in games])
    digests = [str(player) for player in range(len(evaluators))]
    arguments = (rules, settings, evaluators, digests, streams, num_slots, max_nodes, progress)
    return play_games(*arguments, search_threads, half_batches, stop_after)


def digest_of(record: GameRecord) -> str:
    """SHA-256 of all fields of a record."""
    digest = hashlib.sha256()
    arrays = [record.actions, record.visit_counts, record.root_values, record.best_values, record.ownership]
    for array, kind in zip(arrays, ("<i2", "<u2", "<f4", "<f4", "i1"), strict=True):
        digest.update(np.ascontiguousarray(array, kind).tobytes() + b"\0")
    if (record.sample_weights != 1.0).any():  # digests of games without weights stay the same
        digest.update(np.ascontiguousarray(record.sample_weights, "<f4").tobytes() + b"\0")
    result = (record.outcome, record.margin, record.end, record.never_resigns)
    digest.update(repr((*result, record.game, record.black, record.white)).encode())
    return digest.hexdigest()


def same_games(one: Sequence[GameRecord], other: Sequence[GameRecord]) -> bool:
    return [digest_of(record) for record in one] == [digest_of(record) for record in other]


def replayed(rules: Rules, record: GameRecord) -> KernelGame:
    """Replays a game to its end and checks that every move is legal."""
    game = KernelGame(rules)
    for move, action in enumerate(record.actions):
        counts = record.visit_counts[move]
        legal = game.mask()
        assert not counts[~legal].any()
        assert counts[action] > 0
        game.play(int(action))
    return game


def hashes(rules: Rules, *salts: str) -> list[HashEvaluator]:
    """One evaluator per salt; one without salts."""
    return [HashEvaluator(rules, salt) for salt in salts or ("",)]


class Watched(HashEvaluator):
    """Records the shapes of its batches."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.shapes: list[int] = []

    def evaluate(self, planes, prior, value):
        self.shapes.append(len(planes))
        super().evaluate(planes, prior, value)

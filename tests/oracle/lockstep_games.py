"""Games of one or two searches, slow and obvious: one game at a time.

Twin of zero/play/lockstep_games.py, written from the paper (Methods, 'Self-play').
"""

import math
from typing import NamedTuple

import numpy as np

from tests.oracle.forced import RootEdge, forced_action, pruned_visits
from tests.oracle.games import Game
from tests.oracle.mcts import F32, Judge, Node, Search, played
from tests.oracle.streams import Stream


class TwinGame(NamedTuple):
    """A finished game."""

    actions: list[int]
    visit_counts: list[dict[int, int]]
    root_values: list[np.float32]
    best_values: list[np.float32]
    surprises: list[float]  # KL divergence of the policy target from the prior; NaN without a target
    never_resigns: bool
    margin: float
    outcome: int
    resigned: bool


class Settings(NamedTuple):
    """Settings of a game, named as in zero/play/slots.py."""

    num_simulations: int
    max_nodes: int
    c_puct: float
    fpu_from_parent: bool
    random_symmetry: bool
    tree_reuse: bool
    temperature_moves: int
    dirichlet_concentration: float
    dirichlet_fraction: float
    forced_playouts: float
    full_search_fraction: float
    fast_simulations: int
    calibration_fraction: float
    resign_threshold: float


def play_game(
    game: Game, settings: Settings, judges: dict[int, Judge], symmetries: np.ndarray, stream: Stream
) -> TwinGame:
    """Plays a game to its end.

    Args:
      game: the board before the first move.
      settings: settings of the game.
      judges: the evaluator of each colour; the same object for both colours is self-play with one tree.
      symmetries: [K, A], image of action a under symmetry k.
      stream: source of all random numbers of the game.
    """

    def draw_symmetry() -> int:
        return stream.below(len(symmetries)) if settings.random_symmetry else 0

    searches = {
        colour: Search(judge, symmetries, settings.c_puct, settings.fpu_from_parent, draw_symmetry)
        for colour, judge in judges.items()
    }
    if judges[1] is judges[-1]:
        searches[-1] = searches[1]
    never_resigns = settings.resign_threshold <= -1 or stream.uniform() < settings.calibration_fraction
    record = TwinGame([], [], [], [], [], never_resigns, 0.0, 0, False)
    fast = is_fast(settings, stream)
    while not game.ended:
        search = searches[game.to_play]
        if search.tree is None:
            search.start(game)
        root = search.root
        if settings.dirichlet_fraction > 0 and not fast:
            alpha = settings.dirichlet_concentration / len(root.edges)
            search.mix_noise([stream.gamma(alpha) for _ in root.edges], settings.dirichlet_fraction)
        for _ in range(settings.fast_simulations if fast else settings.num_simulations):
            forced = None if fast else forced_action(root_edges(root), settings.forced_playouts)
            search.simulate(root, forced)
        action = search.most_visited()
        value, best_value = search.root_value(), root.edges[action].value_sum / F32(root.edges[action].visits)
        if not never_resigns and len(record.actions) >= 2 and max(value, best_value) < settings.resign_threshold:
            return record._replace(outcome=-game.to_play, resigned=True)
        if len(record.actions) < settings.temperature_moves:
            action = drawn_by_visits(root, stream.uniform())
        record.actions.append(action)
        target = {a: edge.visits for a, edge in root.edges.items() if edge.visits}
        if settings.forced_playouts:
            target = pruned_visits(root_edges(root), float(F32(settings.c_puct)), settings.forced_playouts)
        record.visit_counts.append({} if fast else target)
        record.surprises.append(math.nan if fast else divergence(root, target))
        record.root_values.append(value)
        record.best_values.append(best_value)
        game = played(game, action)
        for search in set(searches.values()):
            if settings.tree_reuse:
                search.follow(action, settings.max_nodes - settings.num_simulations - 1)
            else:
                search.tree = None
        if not game.ended:
            fast = is_fast(settings, stream)
    return record._replace(margin=game.margin(), outcome=game.outcome())


def is_fast(settings: Settings, stream: Stream) -> bool:
    """True if the next move gets the few simulations of a fast search."""
    return settings.full_search_fraction < 1 and stream.uniform() >= settings.full_search_fraction


def divergence(root: Node, target: dict[int, int]) -> float:
    """KL divergence of a policy target from the root's prior."""
    shares = {action: count / sum(target.values()) for action, count in target.items()}
    return sum(share * math.log(share / float(root.edges[action].prior)) for action, share in shares.items())


def sample_weights(surprises: list[float], surprise_weight: float) -> list[float]:
    """Weights of a game's moves as training samples (KataGo's policy surprise weighting)."""
    known = [surprise for surprise in surprises if not math.isnan(surprise)]
    mean = sum(known) / max(1, len(known))
    return [
        0.0 if math.isnan(surprise) else 1 - surprise_weight + surprise_weight * surprise / mean
        for surprise in surprises
    ]


def root_edges(root: Node) -> list[RootEdge]:
    """The edges of a root, for the twin of forced playouts."""
    return [RootEdge(a, float(e.prior), e.visits, float(e.value_sum)) for a, e in root.edges.items()]


def drawn_by_visits(root: Node, uniform: float) -> int:
    """The action whose interval of the cumulative visits contains the number in [0, 1)."""
    threshold = uniform * root.visits
    end = 0
    for action, edge in root.edges.items():
        end += edge.visits
        if threshold < end:
            return action
    raise AssertionError("the root has no visits")

"""The data of games in lock-step: settings, slots, batches of evaluations, and records."""

from typing import NamedTuple

import numpy as np

from zero.config.params import PlayParams, SearchParams
from zero.games.position import NOT_ENDED, NUM_PLANES, History, Position, Rules, new_history, new_position
from zero.search.cache import EvaluationCache, new_cache
from zero.search.gumbel import GumbelRoots, new_gumbel_roots
from zero.search.mcts import Path, new_path
from zero.search.streams import STREAM_WORDS
from zero.search.tree import Trees, new_trees
from zero.storage.manifests import NO_RESIGNATION, RESIGNATION

IDLE = -1
"""Game of a slot when the shard has no game left for it."""
NO_REQUEST = -1
"""Row of a slot that does not wait for an evaluation."""

END_RESIGNATION = NOT_ENDED
"""A game that the rules did not end was resigned."""
END_NAMES = (RESIGNATION, "passes", "length", "line", "full", "blocked")
"""How a game ended, in records; the index is `END_RESIGNATION` or the value of `Position.state[ENDED]`."""


class PlaySettings(NamedTuple):
    """`SearchParams` and `PlayParams` as the kernels take them; made by `play_settings`."""

    num_players: int  # 1: self-play; 2: a match, where player 0 has Black in games of even number
    num_simulations: int
    c_puct: float
    fpu_from_parent: bool  # first-play urgency: the mean value of the node, else 0
    random_symmetry: bool
    tree_reuse: bool
    temperature_moves: int
    dirichlet_concentration: float
    dirichlet_fraction: float
    first_game: int  # number of the shard's first game in its generation
    forced_playouts: float
    full_search_fraction: float  # playout-cap randomisation: probability of a full search
    fast_simulations: int  # simulations of the other moves
    calibration_fraction: float
    resign_threshold: float
    evaluation_cache: int  # entries, 0: off
    gumbel: bool
    considered_actions: int  # max_num_considered_actions of mctx
    gumbel_scale: float
    value_scale: float
    rescale_values: bool
    pass_wins: bool = False  # see `zero.search.tree.Trees`
    surprise_weight: float = 0.0  # 0: samples are not weighted


class Slots(NamedTuple):
    """Games in play: G slots, P players, G * P trees; player p has tree s * P + p in slot s."""

    game: np.ndarray  # [G] int32, index of the game within the shard, or IDLE
    positions: Position  # leading axis G
    histories: History  # leading axis G
    trees: Trees
    path: Path
    leaf: np.ndarray  # [G] int32, node that waits for an evaluation
    row: np.ndarray  # [G] int32, its row in the player's batch, or NO_REQUEST
    symmetry: np.ndarray  # [G] int32, symmetry that the network sees the leaf under
    simulations_left: np.ndarray  # [G] int32, of the current move
    is_new_root: np.ndarray  # [G] bool, True: the root has no noise or Gumbel numbers yet
    is_fast: np.ndarray  # [G] bool, True: the current move gets `fast_simulations` and is not a policy target
    next_game: np.ndarray  # [1] int32, next game to start
    position: Position  # scratch: position of the current simulation
    mask: np.ndarray  # [A] bool, scratch
    cache: EvaluationCache
    roots: GumbelRoots


class Batch(NamedTuple):
    """Evaluations that the games request and their results, by player."""

    num_requests: np.ndarray  # [P] int32
    planes: np.ndarray  # [P, G, 17, W] uint64, see `zero.games.planes`
    prior: np.ndarray  # [P, G, A] float32
    value: np.ndarray  # [P, G] float32


class Records(NamedTuple):
    """Records of the games of a shard: M games of up to T moves."""

    streams: np.ndarray  # [M, 3] uint64
    actions: np.ndarray  # [M, T] int16
    visit_counts: np.ndarray  # [M, T, A] uint16, policy target times its sum; zeros if the move is not a target
    root_values: np.ndarray  # [M, T] float32, for the player to move
    best_values: np.ndarray  # [M, T] float32, of the most visited action, for the player to move
    sample_weights: np.ndarray  # [M, T] float32, see `GameRecord`; the policy surprise until the game has ended
    ownership: np.ndarray  # [M, S*S] int8, owner of each point at the end of a game of Go, zeros after a resignation
    never_resigns: np.ndarray  # [M] bool
    num_moves: np.ndarray  # [M] int32
    outcome: np.ndarray  # [M] int8, +1, 0, -1 for Black
    margin: np.ndarray  # [M] float32, points for Black
    end: np.ndarray  # [M] int8, index of END_NAMES
    num_done: np.ndarray  # [1] int32
    num_evaluations: np.ndarray  # [1] int64


def play_settings(
    search: SearchParams,
    play: PlayParams,
    *,
    num_players: int = 1,
    first_game: int = 0,
    resign_threshold: float = NO_RESIGNATION,
    gumbel_scale: float = 0.0,
) -> PlaySettings:
    """The settings of a shard's kernels.

    Args:
      search: parameters of the search.
      play: how games are played.
      num_players: 1 for self-play, 2 for a match.
      first_game: number of the shard's first game in its generation.
      resign_threshold: value below which a player resigns.
      gumbel_scale: scale of the noise at a Gumbel root: 1 in self-play, 0 in a match.
    """
    return PlaySettings(
        num_players=num_players,
        num_simulations=play.num_simulations,
        c_puct=search.c_puct,
        fpu_from_parent=search.first_play == "parent",
        random_symmetry=search.random_symmetry,
        tree_reuse=search.tree_reuse,
        temperature_moves=play.temperature_moves,
        dirichlet_concentration=play.dirichlet_concentration,
        dirichlet_fraction=play.dirichlet_fraction,
        first_game=first_game,
        forced_playouts=play.forced_playouts,
        full_search_fraction=play.full_search_fraction,
        fast_simulations=play.fast_simulations,
        calibration_fraction=play.calibration_fraction,
        resign_threshold=resign_threshold,
        evaluation_cache=search.evaluation_cache,
        gumbel=search.root == "gumbel",
        considered_actions=play.considered_actions or search.considered_actions,
        gumbel_scale=gumbel_scale,
        value_scale=search.value_scale,
        rescale_values=search.rescale_values,
        pass_wins=search.pass_wins,
        surprise_weight=play.surprise_weight,
    )


def new_slots(rules: Rules, settings: PlaySettings, num_slots: int, max_nodes: int) -> Slots:
    """Slots without games."""
    return Slots(
        game=np.full(num_slots, IDLE, np.int32),
        positions=new_position(rules, num_slots),
        histories=new_history(rules, num_slots),
        trees=new_trees(num_slots * settings.num_players, max_nodes, rules.num_actions, settings.pass_wins),
        # No path is longer than the nodes of a tree, or the moves of a game.
        path=new_path(num_slots, min(max_nodes, rules.max_moves) + 1),
        leaf=np.zeros(num_slots, np.int32),
        row=np.full(num_slots, NO_REQUEST, np.int32),
        symmetry=np.zeros(num_slots, np.int32),
        simulations_left=np.zeros(num_slots, np.int32),
        is_new_root=np.zeros(num_slots, np.bool_),
        is_fast=np.zeros(num_slots, np.bool_),
        next_game=np.zeros(1, np.int32),
        position=new_position(rules),
        mask=np.zeros(rules.num_actions, np.bool_),
        cache=new_cache(settings.evaluation_cache, NUM_PLANES, rules.num_words, rules.num_actions),
        roots=new_gumbel_roots(
            num_slots * settings.num_players if settings.gumbel else 0,
            rules.num_actions,
            settings.value_scale,
            settings.rescale_values,
        ),
    )


def new_batch(rules: Rules, num_slots: int, num_players: int) -> Batch:
    """A batch with one row per slot and player."""
    return Batch(
        num_requests=np.zeros(num_players, np.int32),
        planes=np.zeros((num_players, num_slots, NUM_PLANES, rules.num_words), np.uint64),
        prior=np.zeros((num_players, num_slots, rules.num_actions), np.float32),
        value=np.zeros((num_players, num_slots), np.float32),
    )


def new_records(rules: Rules, streams: np.ndarray) -> Records:
    """Empty records for the games of `streams` ([M, 3] uint64)."""
    assert streams.shape[1] == STREAM_WORDS
    games, moves = len(streams), rules.max_moves
    return Records(
        streams=streams.copy(),
        actions=np.zeros((games, moves), np.int16),
        visit_counts=np.zeros((games, moves, rules.num_actions), np.uint16),
        root_values=np.zeros((games, moves), np.float32),
        best_values=np.zeros((games, moves), np.float32),
        sample_weights=np.ones((games, moves), np.float32),
        ownership=np.zeros((games, rules.num_points), np.int8),
        never_resigns=np.zeros(games, np.bool_),
        num_moves=np.zeros(games, np.int32),
        outcome=np.zeros(games, np.int8),
        margin=np.zeros(games, np.float32),
        end=np.zeros(games, np.int8),
        num_done=np.zeros(1, np.int32),
        num_evaluations=np.zeros(1, np.int64),
    )

"""The data contract: what must be true of games before a network is trained on them. Values in, faults out.

The rules are adjudicated anew, and what a search writes is held against what it can have written. Every clause is
certain for honest games, however weak the players are, or says how improbable a false alarm is. Clauses over several
games are in `zero.data.duplicates`. Explained in docs/contract.md.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from zero.data.adjudication import NO_FAULT, adjudicate, fault_text
from zero.data.records import GameColumns
from zero.games.planes import write_sample
from zero.games.position import BLACK, NUM_HISTORY, NUM_PLANES, WHITE, WORD_BITS, Rules, new_history, new_position
from zero.play.moves import MAX_VISITS
from zero.search.gumbel import TARGET_SUM
from zero.search.streams import next_float, stream_of
from zero.storage.manifests import NO_RESIGNATION, RESIGNATION

NO_MOVE = -1
"""Move of a fault that is of a whole game."""
VALUE_SLACK = 1e-3
"""How far a mean of values in [-1, 1] may be off: sums are in float32, and a network's tanh may end a bit beyond 1."""
TOLD_FAULTS = 20
"""Faults of a shard that the reason for setting it aside lists."""
SAMPLED_POSITIONS = 64
"""Positions of a shard whose planes are looked at, evenly spaced over its moves."""


class Terms(NamedTuple):
    """What was agreed about the games of a shard, as far as it shows in their records. See `ShardSpec`."""

    kind: str
    weights: tuple[str, ...]
    seed: int
    generation: int
    first_game: int
    num_games: int
    num_simulations: int
    temperature_moves: int
    forced_playouts: float
    full_search_fraction: float
    calibration_fraction: float
    resign_threshold: float
    tree_reuse: bool
    random_symmetry: bool
    gumbel: bool
    root_noise: bool  # Dirichlet or Gumbel numbers make each game's searches its own


class Fault(NamedTuple):
    """One breach of the contract."""

    clause: str
    game: int  # number of the game in its generation
    move: int  # from 0, or NO_MOVE
    text: str  # what is wrong, with the value

    def __str__(self) -> str:
        move = "" if self.move == NO_MOVE else f", move {self.move}"
        return f"game {self.game}{move}: {self.text} ({self.clause})"


class Moves(NamedTuple):
    """All M moves of some games, beside their columns."""

    game: np.ndarray  # [M] int64, index of the game
    move: np.ndarray  # [M] int64, from 0
    mover: np.ndarray  # [M] int8, +1 Black, -1 White
    is_last: np.ndarray  # [M] bool, the last of its game
    is_target: np.ndarray  # [M] bool, it has a policy target
    total: np.ndarray  # [M] int64, sum of the policy target
    most: np.ndarray  # [M] int64, its greatest count
    played: np.ndarray  # [M] int64, the count of the move that was made


def shard_faults(games: GameColumns, rules: Rules, terms: Terms) -> list[Fault]:
    """All that is wrong with the games of one shard, taken one by one. None: an empty list."""
    if games.num_actions != rules.num_actions:
        text = f"its moves are out of {games.num_actions} actions, the game has {rules.num_actions}"
        return [Fault("rules", terms.first_game, NO_MOVE, text)]
    wanted = np.arange(terms.first_game, terms.first_game + terms.num_games)
    if not np.array_equal(games.game, wanted):
        number = int(next((g for g, w in zip(games.game, wanted, strict=False) if g != w), terms.first_game))
        text = f"{games.num_games} games that are not those from {wanted[0]} to {wanted[-1]}"
        return [Fault("numbers", number, NO_MOVE, text)]
    moves = moves_of(games)
    clauses = (
        _rule_faults(games, rules),
        _player_faults(games, terms),
        _calibration_faults(games, terms),
        _target_faults(games, moves, terms),
        _value_faults(games, moves, terms),
    )
    faults = [fault for clause in clauses for fault in clause]
    return faults or list(_plane_faults(games, rules))


def reason_of(name: str, faults: Sequence[Fault]) -> str:
    """Why a shard is set aside: its first faults, one a line."""
    lines = [f"{name} breaks the data contract with {len(faults)} faults:"]
    return "\n  ".join(lines + [str(fault) for fault in faults[:TOLD_FAULTS]])


def moves_of(games: GameColumns) -> Moves:
    """What the clauses ask of every move."""
    lengths = np.diff(games.move_offsets)
    game = np.repeat(np.arange(games.num_games), lengths)
    move = np.arange(games.num_positions) - np.repeat(games.move_offsets[:-1], lengths)
    num_edges = np.diff(games.visit_offsets)
    is_target = num_edges > 0
    counts = games.visit_counts.astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(counts)])
    most = np.zeros(games.num_positions, np.int64)
    played = np.zeros(games.num_positions, np.int64)
    if is_target.any():
        most[is_target] = np.maximum.reduceat(counts, games.visit_offsets[:-1][is_target])
    of_edge = np.repeat(np.arange(games.num_positions), num_edges)
    chosen = games.visit_actions == games.actions[of_edge]
    played[of_edge[chosen]] = counts[chosen]
    return Moves(
        game=game,
        move=move,
        mover=np.where(move % 2 == 0, BLACK, WHITE).astype(np.int8),
        is_last=move == lengths[game] - 1,
        is_target=is_target,
        total=sums[games.visit_offsets[1:]] - sums[games.visit_offsets[:-1]],
        most=most,
        played=played,
    )


def target_bounds(moves: Moves, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest that the policy target of each move can add up to; [M] int64 each.

    A Gumbel root deals out a fixed whole. Otherwise the target is the root's visits: those of the search in hand, and
    in a kept tree those that went through the moves made since. A visit that ends at a position is no visit of one of
    its moves, so a kept root has one visit less than the move that led to it, and in a match, where each player has a
    tree of its own that goes on two moves later, two less. Pruning of forced visits leaves the best move its own.
    """
    number = len(moves.move)
    if terms.gumbel:
        whole = np.full(number, TARGET_SUM)
        return whole, whole
    simulations = np.full(number, terms.num_simulations)
    most = simulations * (moves.move + 1)
    if terms.forced_playouts > 0.0:
        return np.ones(number, np.int64), most if terms.tree_reuse else simulations
    if not terms.tree_reuse:
        return simulations, simulations
    step = len(terms.weights)  # moves between two searches of one tree
    earlier = np.maximum(np.arange(number) - step, 0)
    is_first = moves.move < step
    known = moves.is_target[earlier] & (moves.played[earlier] < MAX_VISITS)
    kept = np.where(known, np.maximum(moves.played[earlier] - step, 0), most - simulations)
    return simulations, simulations + np.where(is_first, 0, kept)


def plane_faults(planes: np.ndarray, before: np.ndarray | None, board: np.ndarray, mover: int) -> list[str]:
    """What is wrong with the planes of a position.

    Args:
      planes: [P, S*S] bool, the position.
      before: the same of the position one move earlier; None at the start of a game.
      board: [S*S] int8, its stones.
      mover: +1 where Black is to move, -1 where White is.
    """
    own, other = planes[0 : NUM_PLANES - 1 : 2], planes[1 : NUM_PLANES - 1 : 2]
    found = []
    if (own & other).any():
        found.append("a point is of both players")
    if not (planes[NUM_PLANES - 1] == (mover == BLACK)).all():
        found.append("the colour plane is not that of the player to move")
    if not (np.array_equal(own[0], board == mover) and np.array_equal(other[0], board == -mover)):
        found.append("the newest planes are not the stones on the board")
    earlier = np.zeros_like(planes) if before is None else before
    if not (
        np.array_equal(own[1:], earlier[1 : 2 * NUM_HISTORY - 2 : 2])
        and np.array_equal(other[1:], earlier[0 : 2 * NUM_HISTORY - 2 : 2])
    ):
        found.append("the older planes are not those of the move before")
    return found


def _rule_faults(games: GameColumns, rules: Rules) -> Iterator[Fault]:
    """Moves, targets and results against the rules."""
    found = adjudicate(rules, games)
    for index in np.flatnonzero(found.fault != NO_FAULT):
        text = fault_text(rules, games, found, int(index))
        yield Fault("rules", int(games.game[index]), int(found.fault_move[index]), text)


def _player_faults(games: GameColumns, terms: Terms) -> Iterator[Fault]:
    """The players are those of the specification; in a match player 0 has Black in the games of even number."""
    for number, black, white in zip(games.game, games.black, games.white, strict=True):
        first = int(number) % 2 if len(terms.weights) == 2 else 0
        for colour, found, wanted in (
            ("Black", black, terms.weights[first]),
            ("White", white, terms.weights[1 - first] if len(terms.weights) == 2 else terms.weights[0]),
        ):
            if found != wanted:
                text = f"{colour} was {found[:12]}, not {wanted[:12]}"
                yield Fault("players", int(number), NO_MOVE, text)


def _calibration_faults(games: GameColumns, terms: Terms) -> Iterator[Fault]:
    """Calibration games are those that the games' own streams chose, and none of them was resigned."""
    for number, never_resigns, end in zip(games.game, games.never_resigns, games.end, strict=True):
        is_drawn = True
        if terms.resign_threshold > NO_RESIGNATION:
            stream = stream_of(terms.seed, terms.generation, terms.kind, int(number))
            is_drawn = next_float(stream) < terms.calibration_fraction
        if bool(never_resigns) != is_drawn:
            text = f"never_resigns is {bool(never_resigns)}, its stream says {is_drawn}"
            yield Fault("calibration", int(number), NO_MOVE, text)
        elif is_drawn and end == RESIGNATION:
            yield Fault("calibration", int(number), NO_MOVE, "a calibration game was resigned")


def _target_faults(games: GameColumns, moves: Moves, terms: Terms) -> Iterator[Fault]:
    """Visit counts: none zero, actions in order, where and as many as the search makes them."""
    of_edge = np.repeat(np.arange(games.num_positions), np.diff(games.visit_offsets))
    same_move = of_edge[1:] == of_edge[:-1]
    disordered = np.zeros(games.num_positions, np.bool_)
    disordered[of_edge[1:][same_move & (np.diff(games.visit_actions) <= 0)]] = True
    empty = np.zeros(games.num_positions, np.bool_)
    empty[of_edge[games.visit_counts == 0]] = True
    yield from _of_moves(games, moves, "targets", disordered, "actions of the target are repeated or out of order", ())
    yield from _of_moves(games, moves, "targets", empty, "an action of the target has no visit", ())
    if terms.full_search_fraction >= 1.0:
        yield from _of_moves(games, moves, "targets", ~moves.is_target, "no policy target, but every move has one", ())
    least, most = target_bounds(moves, terms)
    out_of_bounds = moves.is_target & ((moves.total < least) | (moves.total > most))
    text = "the policy target adds up to {}, possible are {} to {}"
    yield from _of_moves(games, moves, "targets", out_of_bounds, text, (moves.total, least, most))
    if not terms.gumbel and terms.forced_playouts == 0.0:
        unseen = moves.is_target & (moves.played == 0)
        yield from _of_moves(games, moves, "targets", unseen, "the move made has no visit", ())
        greedy = moves.is_target & (moves.move >= terms.temperature_moves)
        text = "the move made has {} visits, another has {}"
        beaten = greedy & ~unseen & (moves.played < moves.most)
        yield from _of_moves(games, moves, "targets", beaten, text, (moves.played, moves.most))


def _value_faults(games: GameColumns, moves: Moves, terms: Terms) -> Iterator[Fault]:
    """Values: within range, in keeping with the visits, and of the result where the search has seen it.

    The last move of a game that was played out leads to its end, whose value is the result and nothing else: so the
    value of that move is the result exactly, seen by its player, whatever the network believes. Before, the mean value
    of a root with N visits, n of them to its best move, is n / N of that move's value and at most 1 off in the rest.
    """
    for name, values in (("root", games.root_values), ("best", games.best_values)):
        bad = ~(np.abs(values) <= 1.0 + VALUE_SLACK)  # so that NaN is bad
        yield from _of_moves(games, moves, "values", bad, f"the {name} value is {{:g}}", (values,))
    is_best = moves.move >= (0 if terms.gumbel else terms.temperature_moves)
    played_out = np.array([end != RESIGNATION for end in games.end], np.bool_)[moves.game]
    result = (games.outcome[moves.game] * moves.mover).astype(np.float32)
    best = np.nan_to_num(games.best_values.astype(np.float64), posinf=0.0, neginf=0.0)
    wrong = moves.is_last & is_best & played_out & ~(games.best_values == result)
    text = "the last move is worth {:g} to its player, the result is {:+.0f}"
    yield from _of_moves(games, moves, "values", wrong, text, (games.best_values, result))
    if not terms.gumbel and terms.forced_playouts == 0.0:
        total = np.maximum(moves.total, 1)
        rest = (total - moves.most) / total
        middle = best * moves.most / total
        known = moves.is_target & (moves.most < MAX_VISITS)
        apart = known & ~(np.abs(games.root_values - middle) <= rest + VALUE_SLACK)
        text = "the root value is {:g}, by the visits {:.3f} to {:.3f}"
        yield from _of_moves(games, moves, "values", apart, text, (games.root_values, middle - rest, middle + rest))


def _plane_faults(games: GameColumns, rules: Rules) -> Iterator[Fault]:
    """The planes of some positions; of games that follow the rules."""
    position, history = new_position(rules), new_history(rules)
    bits = np.zeros((2, NUM_PLANES, rules.num_words), np.uint64)
    count = min(SAMPLED_POSITIONS, games.num_positions)
    for index in np.arange(count) * games.num_positions // max(1, count):
        game = int(np.searchsorted(games.move_offsets, index, side="right")) - 1
        first = int(games.move_offsets[game])
        move = int(index) - first
        actions = np.array(games.actions[first : first + move])  # a copy: one type for the kernel, writable or not
        if move > 0:
            write_sample(rules, position, history, actions, move - 1, 0, bits[1])
        write_sample(rules, position, history, actions, move, 0, bits[0])
        planes, before = unpack_planes(bits, rules.num_points)
        mover = BLACK if move % 2 == 0 else WHITE
        board = position.board[: rules.num_points]
        for text in plane_faults(planes, before if move else None, board, mover):
            yield Fault("planes", int(games.game[game]), move, text)


def unpack_planes(bits: np.ndarray, num_points: int) -> np.ndarray:
    """Planes [..., S*S] bool of bitboards [..., W] uint64."""
    words = np.ascontiguousarray(bits, "<u8").view(np.uint8)
    flat = np.unpackbits(words.reshape(*bits.shape[:-1], bits.shape[-1] * WORD_BITS // 8), axis=-1, bitorder="little")
    return flat[..., :num_points].astype(np.bool_)


def _of_moves(
    games: GameColumns, moves: Moves, clause: str, bad: np.ndarray, text: str, values: Sequence[np.ndarray]
) -> Iterator[Fault]:
    """A fault for each bad move; `text` is filled in with its `values`."""
    for index in np.flatnonzero(bad):
        filled = text.format(*(value[index] for value in values))
        yield Fault(clause, int(games.game[moves.game[index]]), int(moves.move[index]), filled)

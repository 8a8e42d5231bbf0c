"""The data contract: what must be true of games before a network is trained on them. Values in, violations out.

Games are replayed by the rules, and the output of the search is checked against what the search can produce. Every
clause holds for all correctly played games, however weak the players are, or its docstring gives the probability of a
false alarm. The clause `streams` compares games with one another. See docs/contract.md.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from zero.data.adjudication import NO_VIOLATION, adjudicate, violation_text
from zero.data.records import GameColumns
from zero.games.planes import write_sample
from zero.games.position import BLACK, NUM_HISTORY, NUM_PLANES, WHITE, WORD_BITS, Rules, new_history, new_position
from zero.play.moves import MAX_VISITS
from zero.search.gumbel import TARGET_SUM
from zero.search.streams import next_float, stream_of
from zero.storage.manifests import NO_RESIGNATION, RESIGNATION, ExpectedProperties, ShardRef

NO_MOVE = -1
"""`Violation.move` if the violation concerns the complete game."""
VALUE_SLACK = 1e-3
"""Tolerance for a mean of values in [-1, 1]: sums are in float32, and a network's tanh may slightly exceed 1."""
WEIGHT_SLACK = 1e-3
"""Tolerance for the mean of the sample weights, which are in float32."""
MAX_LISTED_VIOLATIONS = 20
"""Violations of a shard that the reason for its quarantine lists."""
SAMPLED_POSITIONS = 64
"""Positions of a shard whose planes are checked, evenly spaced over its moves."""
COMPARED_MOVES = 24
"""Moves at the start of two games that are compared; shorter games are not compared."""
DISTINCTIVE_MOVES = 16
"""Compared moves whose root value must not be an integer; it is one if every simulation of a search ends a game.

A root value is a mean of evaluations, each under one of eight symmetries (Othello: four) drawn from the game's random
stream. Two streams give the same root value in the same position with probability 1/8 at most (with one simulation; far
less with more), and in 16 positions with probability 3e-15 (Othello: 2e-10). A window of 500,000 games has 1.3e11
pairs, few of them with the same moves. A network whose training has collapsed gives all positions the same value; then
the root noise makes the games differ. Without root noise the clause is not applied."""


class Violation(NamedTuple):
    """One violation of the data contract."""

    clause: str
    game: int  # number of the game in its generation
    move: int  # from 0, or NO_MOVE
    text: str  # what is wrong, with the value

    def __str__(self) -> str:
        move = "" if self.move == NO_MOVE else f", move {self.move}"
        return f"game {self.game}{move}: {self.text} ({self.clause})"


class Moves(NamedTuple):
    """Derived values of all M moves of some games."""

    game: np.ndarray  # [M] int64, index of the game
    move: np.ndarray  # [M] int64, from 0
    mover: np.ndarray  # [M] int8, +1 Black, -1 White
    is_last: np.ndarray  # [M] bool, last move of its game
    is_target: np.ndarray  # [M] bool, it has a policy target
    total: np.ndarray  # [M] int64, sum of the policy target
    most: np.ndarray  # [M] int64, largest count of the policy target
    played: np.ndarray  # [M] int64, count of the played move


class Opening(NamedTuple):
    """The part of a game that is compared with other games."""

    generation: int
    game: int  # number in its generation
    moves: bytes  # all actions
    values: bytes  # the first COMPARED_MOVES actions and root values; empty if they cannot distinguish two streams


def shard_violations(games: GameColumns, rules: Rules, expected: ExpectedProperties) -> list[Violation]:
    """Violations by single games of a shard; empty if there are none."""
    if games.num_actions != rules.num_actions:
        text = f"its moves are out of {games.num_actions} actions, the game has {rules.num_actions}"
        return [Violation("rules", expected.first_game, NO_MOVE, text)]
    numbers = np.arange(expected.first_game, expected.first_game + expected.num_games)
    if not np.array_equal(games.game, numbers):
        number = int(next((g for g, n in zip(games.game, numbers, strict=False) if g != n), expected.first_game))
        text = f"{games.num_games} games that are not those from {numbers[0]} to {numbers[-1]}"
        return [Violation("numbers", number, NO_MOVE, text)]
    # After the two checks above: the clauses below rely on the number of actions and the numbers of the games.
    moves = moves_of(games)
    clauses = (
        _rule_violations(games, rules),
        _player_violations(games, expected),
        _calibration_violations(games, expected),
        _target_violations(games, moves, expected),
        _value_violations(games, moves, expected),
        _weight_violations(games, moves, expected.play.surprise_weight),
    )
    violations = [violation for clause in clauses for violation in clause]
    return violations or list(_plane_violations(games, rules))  # planes need legal moves


def openings_of(games: GameColumns, generation: int) -> list[Opening]:
    """The openings of the games of a shard."""
    openings = []
    for index, number in enumerate(games.game):
        first, end = int(games.move_offsets[index]), int(games.move_offsets[index + 1])
        actions, values = games.actions[first:end], games.root_values[first : min(end, first + COMPARED_MOVES)]
        distinctive = len(values) == COMPARED_MOVES and np.count_nonzero(values != np.rint(values)) >= DISTINCTIVE_MOVES
        # Bytes, so that equal games have equal keys of a dictionary and floats are compared bit by bit.
        compared = actions[:COMPARED_MOVES].tobytes() + values.tobytes() if distinctive else b""
        openings.append(Opening(generation, int(number), actions.tobytes(), compared))
    return openings


def stream_violations(new: Sequence[Opening], old: Sequence[Opening], expected: ExpectedProperties) -> list[Violation]:
    """Violations by new games that were played from the random stream of an old game or an earlier new game.

    Without random symmetries or root noise, two correctly played games may be equal; then there are no violations.
    """
    if not (expected.search.random_symmetry and expected.root_noise):
        return []
    # Empty values are left out: they cannot show which stream a game was played from.
    seen = {opening.values: opening for opening in old if opening.values}
    violations = []
    for opening in new:
        twin = seen.setdefault(opening.values, opening) if opening.values else opening
        if twin is not opening:
            text = (
                f"its first {COMPARED_MOVES} moves and root values are those of game {twin.game} of generation "
                f"{twin.generation}: one random stream was played twice"
            )
            violations.append(Violation("streams", opening.game, NO_MOVE, text))
    return violations


def by_shard(
    violations: Sequence[Violation], shards: Sequence[ShardRef | ExpectedProperties]
) -> dict[int, list[Violation]]:
    """Violations by the index of the shard that has the game."""
    found: dict[int, list[Violation]] = {}
    for violation in violations:
        index = next(i for i, shard in enumerate(shards) if 0 <= violation.game - shard.first_game < shard.num_games)
        found.setdefault(index, []).append(violation)
    return found


def format_violations(name: str, violations: Sequence[Violation]) -> str:
    """The reason for the quarantine of a shard: its first violations, one per line."""
    lines = [f"{name} breaks the data contract with {len(violations)} violations:"]
    return "\n  ".join(lines + [str(violation) for violation in violations[:MAX_LISTED_VIOLATIONS]])


def moves_of(games: GameColumns) -> Moves:
    """Values of every move that several clauses need."""
    lengths = np.diff(games.move_offsets)
    game = np.repeat(np.arange(games.num_games), lengths)
    move = np.arange(games.num_positions) - np.repeat(games.move_offsets[:-1], lengths)
    num_edges = np.diff(games.visit_offsets)
    is_target = num_edges > 0
    counts = games.visit_counts.astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(counts)])  # int64: uint16 sums would overflow
    most = np.zeros(games.num_positions, np.int64)
    played = np.zeros(games.num_positions, np.int64)
    if is_target.any():  # reduceat gives wrong values for empty segments
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


def target_bounds(moves: Moves, expected: ExpectedProperties) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the sum of each move's policy target; two arrays [M] int64.

    At a Gumbel root the sum is the constant TARGET_SUM. Otherwise the target is the visit counts of the root: those
    of this search, and with tree reuse those of earlier searches that passed through the moves played since. A visit
    that ends at a position visits none of its moves, so a reused root has one visit less than the move that led to it.
    In a match each player reuses its own tree two moves later, so the root has two visits less. The pruning of forced
    playouts keeps the visits of the best move.
    """
    number = len(moves.move)
    if expected.gumbel:
        whole = np.full(number, TARGET_SUM)
        return whole, whole
    simulations = np.full(number, expected.play.num_simulations)
    most = simulations * (moves.move + 1)
    if expected.play.forced_playouts > 0.0:
        return np.ones(number, np.int64), most if expected.search.tree_reuse else simulations
    if not expected.search.tree_reuse:
        return simulations, simulations
    step = len(expected.weights)  # moves between two searches of the same tree
    earlier = np.maximum(np.arange(number) - step, 0)
    is_first = moves.move < step
    # A count of MAX_VISITS is saturated, so the true number of reused visits is unknown.
    known = moves.is_target[earlier] & (moves.played[earlier] < MAX_VISITS)
    kept = np.where(known, np.maximum(moves.played[earlier] - step, 0), most - simulations)
    return simulations, simulations + np.where(is_first, 0, kept)


def plane_violations(planes: np.ndarray, before: np.ndarray | None, board: np.ndarray, mover: int) -> list[str]:
    """Violations in the planes of a position.

    Args:
      planes: [P, S*S] bool, planes of the position.
      before: [P, S*S] bool, planes one move earlier; None at the start of a game.
      board: [S*S] int8, stones of the position.
      mover: +1 if Black is to move, -1 if White is.
    """
    own, other = planes[0 : NUM_PLANES - 1 : 2], planes[1 : NUM_PLANES - 1 : 2]
    found = []
    if (own & other).any():
        found.append("a point belongs to both players")
    if not (planes[NUM_PLANES - 1] == (mover == BLACK)).all():
        found.append("the colour plane does not match the player to move")
    if not (np.array_equal(own[0], board == mover) and np.array_equal(other[0], board == -mover)):
        found.append("the newest planes do not match the stones on the board")
    # The players alternate: own planes of now are the opponent's planes of the move before, and the reverse.
    earlier = np.zeros_like(planes) if before is None else before
    if not (
        np.array_equal(own[1:], earlier[1 : 2 * NUM_HISTORY - 2 : 2])
        and np.array_equal(other[1:], earlier[0 : 2 * NUM_HISTORY - 2 : 2])
    ):
        found.append("the older planes do not match those of the previous move")
    return found


def _rule_violations(games: GameColumns, rules: Rules) -> Iterator[Violation]:
    """Violations of the rules by moves, targets and results."""
    found = adjudicate(rules, games)
    for index in np.flatnonzero(found.violation != NO_VIOLATION):
        text = violation_text(rules, games, found, int(index))
        yield Violation("rules", int(games.game[index]), int(found.violation_move[index]), text)


def _player_violations(games: GameColumns, expected: ExpectedProperties) -> Iterator[Violation]:
    """The players are those of the specification; in a match player 0 plays Black in games with even numbers."""
    for number, black, white in zip(games.game, games.black, games.white, strict=True):
        first = int(number) % 2 if len(expected.weights) == 2 else 0
        for colour, found, digest in (
            ("Black", black, expected.weights[first]),
            ("White", white, expected.weights[1 - first] if len(expected.weights) == 2 else expected.weights[0]),
        ):
            if found != digest:
                text = f"{colour} was {found[:12]}, not {digest[:12]}"
                yield Violation("players", int(number), NO_MOVE, text)


def _calibration_violations(games: GameColumns, expected: ExpectedProperties) -> Iterator[Violation]:
    """The random stream of each game decides whether it is a calibration game; calibration games are not resigned."""
    for number, never_resigns, end in zip(games.game, games.never_resigns, games.end, strict=True):
        is_drawn = True
        if expected.resign_threshold > NO_RESIGNATION:
            stream = stream_of(expected.seed, expected.generation, expected.kind, int(number))
            # The first draw of the game's stream, as in `lockstep_games._start_next_game`.
            is_drawn = next_float(stream) < expected.play.calibration_fraction
        if bool(never_resigns) != is_drawn:
            text = f"never_resigns is {bool(never_resigns)}, its random stream gives {is_drawn}"
            yield Violation("calibration", int(number), NO_MOVE, text)
        elif is_drawn and end == RESIGNATION:
            yield Violation("calibration", int(number), NO_MOVE, "a calibration game was resigned")


def _target_violations(games: GameColumns, moves: Moves, expected: ExpectedProperties) -> Iterator[Violation]:
    """Visit counts are not zero, in the order of actions, and add up to what the search can produce."""
    of_edge = np.repeat(np.arange(games.num_positions), np.diff(games.visit_offsets))
    same_move = of_edge[1:] == of_edge[:-1]
    disordered = np.zeros(games.num_positions, np.bool_)
    disordered[of_edge[1:][same_move & (np.diff(games.visit_actions) <= 0)]] = True
    empty = np.zeros(games.num_positions, np.bool_)
    empty[of_edge[games.visit_counts == 0]] = True
    yield from _by_move(games, moves, "targets", disordered, "actions of the target are repeated or out of order", ())
    yield from _by_move(games, moves, "targets", empty, "an action of the target has no visit", ())
    if expected.play.full_search_fraction >= 1.0:
        yield from _by_move(games, moves, "targets", ~moves.is_target, "there is no policy target", ())
    least, most = target_bounds(moves, expected)
    out_of_bounds = moves.is_target & ((moves.total < least) | (moves.total > most))
    text = "the policy target adds up to {}, possible are {} to {}"
    yield from _by_move(games, moves, "targets", out_of_bounds, text, (moves.total, least, most))
    if expected.shows_choices:
        unseen = moves.is_target & (moves.played == 0)
        yield from _by_move(games, moves, "targets", unseen, "the played move has no visit", ())
        greedy = moves.is_target & (moves.move >= expected.play.temperature_moves)
        text = "the played move has {} visits, another has {}"
        beaten = greedy & ~unseen & (moves.played < moves.most)
        yield from _by_move(games, moves, "targets", beaten, text, (moves.played, moves.most))


def _value_violations(games: GameColumns, moves: Moves, expected: ExpectedProperties) -> Iterator[Violation]:
    """Values are in range, agree with the visit counts, and equal the result where the search has reached the end.

    The last move of a game that was played out leads to a terminal position, whose value is the result. So the value of
    that move is exactly the result for its player, whatever the network predicts. For a root with N visits, n of them
    to its best move, the mean value is n / N times that move's value plus at most 1 - n / N in size.
    """
    for name, values in (("root", games.root_values), ("best", games.best_values)):
        bad = ~(np.abs(values) <= 1.0 + VALUE_SLACK)  # negated, so that NaN is bad
        yield from _by_move(games, moves, "values", bad, f"the {name} value is {{:g}}", (values,))
    # `best_values` belong to the most visited move, which is the played one only where the move was not drawn.
    is_best = moves.move >= (0 if expected.gumbel else expected.play.temperature_moves)
    played_out = np.array([end != RESIGNATION for end in games.end], np.bool_)[moves.game]
    result = (games.outcome[moves.game] * moves.mover).astype(np.float32)
    # NaN and infinity are reported above; here they would only cause warnings.
    best = np.nan_to_num(games.best_values.astype(np.float64), posinf=0.0, neginf=0.0)
    wrong = moves.is_last & is_best & played_out & ~(games.best_values == result)
    text = "the last move is worth {:g} to its player, the result is {:+.0f}"
    yield from _by_move(games, moves, "values", wrong, text, (games.best_values, result))
    if expected.shows_choices:
        total = np.maximum(moves.total, 1)
        rest = (total - moves.most) / total
        middle = best * moves.most / total
        # A saturated count is too small, so the bounds computed from it would be wrong.
        known = moves.is_target & (moves.most < MAX_VISITS)
        apart = known & ~(np.abs(games.root_values - middle) <= rest + VALUE_SLACK)
        text = "the root value is {:g}, by the visits {:.3f} to {:.3f}"
        yield from _by_move(games, moves, "values", apart, text, (games.root_values, middle - rest, middle + rest))


def _weight_violations(games: GameColumns, moves: Moves, surprise_weight: float) -> Iterator[Violation]:
    """Weights of the policy targets are at least the uniform share and have mean 1 in each game; others are 0."""
    weights = games.sample_weights
    if surprise_weight == 0.0:
        yield from _by_move(games, moves, "weights", weights != 1.0, "the sample weight is {:g}, not 1", (weights,))
        return
    least = np.where(moves.is_target, 1.0 - surprise_weight, 0.0)
    most = np.where(moves.is_target, np.inf, 0.0)
    bad = ~((weights >= np.maximum(least - WEIGHT_SLACK, 0.0)) & (weights <= most))  # negated, so that NaN is bad
    text = "the sample weight is {:g}, possible are {:g} to {:g}"
    yield from _by_move(games, moves, "weights", bad, text, (weights, least, most))
    if bad.any():
        return
    totals = np.bincount(moves.game, weights, games.num_games)
    targets = np.bincount(moves.game, moves.is_target, games.num_games)
    for game in np.flatnonzero(~(np.abs(totals - targets) <= WEIGHT_SLACK * np.maximum(targets, 1))):
        text = f"the sample weights add up to {totals[game]:g}, there are {targets[game]:.0f} policy targets"
        yield Violation("weights", int(games.game[game]), NO_MOVE, text)


def _plane_violations(games: GameColumns, rules: Rules) -> Iterator[Violation]:
    """Violations in the planes of some positions; requires games that follow the rules."""
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
        for text in plane_violations(planes, before if move else None, board, mover):
            yield Violation("planes", int(games.game[game]), move, text)


def unpack_planes(bits: np.ndarray, num_points: int) -> np.ndarray:
    """Planes [..., S*S] bool of bitboards [..., W] uint64."""
    words = np.ascontiguousarray(bits, "<u8").view(np.uint8)
    flat = np.unpackbits(words.reshape(*bits.shape[:-1], bits.shape[-1] * WORD_BITS // 8), axis=-1, bitorder="little")
    return flat[..., :num_points].astype(np.bool_)


def _by_move(
    games: GameColumns, moves: Moves, clause: str, bad: np.ndarray, text: str, values: Sequence[np.ndarray]
) -> Iterator[Violation]:
    """One violation for each bad move; `text` is formatted with the move's `values`."""
    for index in np.flatnonzero(bad):
        filled = text.format(*(value[index] for value in values))
        yield Violation(clause, int(games.game[moves.game[index]]), int(moves.move[index]), filled)

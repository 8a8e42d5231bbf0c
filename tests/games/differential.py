"""The rules of Go against GNU Go 3.8 over random games: `python -m tests.games.differential --positions 100000`.

At each position both sides must have the same stones and the same legal points under positional superko. Half of the
games are random moves. In the other half ("fights") the players capture if they can, the fewest stones first, which
makes kos, and cycles of kos that superko ends. A game depends only on (seed, size, suicide, number of the game).
Not for: rectangular boards, which GNU Go does not support; scores, since its `final_score` removes dead stones.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from tests.games.kernel_game import KernelGame
from tests.oracle.gnugo import MISSING, GnuGo, gnugo_options, is_installed
from tests.oracle.go import Board, Point, Points, after, all_points, neighbours, region, regions
from zero.games.coordinates import action_to_name
from zero.games.position import BLACK, WHITE, Rules
from zero.games.rules import go_rules
from zero.progress import progress_of

MAX_MOVES = 500
"""Maximum number of moves: GNU Go compares no more positions for superko."""
PASS_CHANCE = 0.02
FIGHT_CHANCE = 0.9
"""Fraction of the moves of a fight that capture if possible; the others are random."""
IDLE_CHANCE = 0.5
"""Probability of a pass in a fight without captures, on a board more than half full: a forbidden ko stays open."""
SMALLEST, LARGEST = 2, 19
GTP_COLOURS = {BLACK: "black", WHITE: "white"}


class Turn(NamedTuple):
    """A position of a game, the points that the kernels allow there, and the move."""

    board: Board
    empty: Points
    to_play: int
    legal: Points
    action: int


class RandomGame(NamedTuple):
    """A game that the kernels played against themselves."""

    name: str
    rules: Rules
    turns: list[Turn]
    end: KernelGame


class Tally(NamedTuple):
    """Counts of the comparisons without a difference."""

    num_games: int = 0
    num_positions: int = 0
    num_superko: int = 0  # positions where superko forbids a point, except a suicide of one stone
    num_cycles: int = 0  # of these, beyond an immediate recapture of a ko
    seconds: float = 0.0

    def plus(self, other: "Tally") -> "Tally":
        return Tally._make(a + b for a, b in zip(self, other, strict=True))

    def __str__(self) -> str:
        compared = f"{self.num_positions:,} positions of {self.num_games:,} games"
        superko = f"superko forbade a point in {self.num_superko:,}, beyond a simple ko in {self.num_cycles:,}"
        return f"{compared}, {superko}; 0 differences; {self.seconds:.1f} s"


class DifferenceError(AssertionError):
    """The kernels and GNU Go disagree; the text shows how to reproduce it."""


def random_game(size: int, allow_suicide: bool, seed: int, number: int) -> RandomGame:
    """Game `number`; odd numbers are fights."""
    random = np.random.default_rng([seed, size, allow_suicide, number])
    game = KernelGame(go_rules(size, size, 0.0, allow_suicide)._replace(max_moves=MAX_MOVES))
    turns: list[Turn] = []
    while not game.ended:
        board = game.board()
        empty = frozenset(all_points(size, size)) - board.black - board.white
        legal = sorted(divmod(action, size) for action in game.legal_actions() - {game.pass_action})
        points, pass_chance = legal, PASS_CHANCE
        if number % 2 and random.random() < FIGHT_CHANCE:
            points = smallest_captures(board, empty, game.to_play, legal)
            if not points:
                points = legal
                pass_chance = IDLE_CHANCE if 2 * len(empty) < size * size else PASS_CHANCE
        # No pass after a pass, so that a game continues while there is a move.
        may_pass = not (turns and turns[-1].action == game.pass_action)
        passes = not legal or (may_pass and random.random() < pass_chance)
        row, column = (size, 0) if passes else points[random.integers(len(points))]
        turns.append(Turn(board, empty, game.to_play, frozenset(legal), row * size + column))
        game.play(turns[-1].action)
    name = f"{size}x{size}, suicide {'on' if allow_suicide else 'off'}, seed {seed}, game {number}"
    return RandomGame(name, game.rules, turns, game)


def smallest_captures(board: Board, empty: Points, colour: int, legal: Sequence[Point]) -> list[Point]:
    """The legal points that capture the fewest stones, at least one; empty if no move captures."""
    stones_taken: dict[Point, int] = {}
    for chain in regions(board.stones(-colour)):
        liberties = frozenset().union(*(neighbours(stone) for stone in chain)) & empty
        if len(liberties) == 1:
            (point,) = liberties
            stones_taken[point] = stones_taken.get(point, 0) + len(chain)
    captures = [point for point in legal if point in stones_taken]
    fewest = min((stones_taken[point] for point in captures), default=0)
    return [point for point in captures if stones_taken[point] == fewest]


def compare(gnugo: GnuGo, game: RandomGame, interval: int = 1) -> Tally:
    """Replays a game in GNU Go and compares each `interval`-th position.

    Raises:
      DifferenceError: at the first difference.
    """
    size = game.rules.rows
    responses = gnugo.ask_all(list(gtp_commands(game, interval)))
    next(responses), next(responses)
    points = {action_to_name(game.rules, row * size + column): (row, column) for row, column in all_points(size, size)}
    tally = Tally(num_games=1)
    seen: set[Board] = set()
    for number, turn in enumerate(game.turns):
        seen.add(turn.board)
        if number % interval == 0:
            black, white, allowed = (frozenset(points[name] for name in next(responses).split()) for _ in range(3))
            if game.rules.allow_suicide:
                allowed = superko_for_suicides(size, turn, allowed, seen)
            if (black, white, allowed) != (*turn.board, turn.legal):
                raise DifferenceError(explanation(game, number, Board(black, white), allowed))
            tally = tally.plus(superko_of(game, number))
        next(responses)
    return tally


def gtp_commands(game: RandomGame, interval: int) -> Iterator[str]:
    """Commands for GNU Go: moves, and three queries at each `interval`-th position."""
    yield f"boardsize {game.rules.rows}"
    yield "clear_board"
    for number, turn in enumerate(game.turns):
        colour = GTP_COLOURS[turn.to_play]
        if number % interval == 0:
            yield from ("list_stones black", "list_stones white", f"all_legal {colour}")
        yield f"play {colour} {action_to_name(game.rules, turn.action)}"


def superko_for_suicides(size: int, turn: Turn, allowed: Points, seen: set[Board]) -> Points:
    """The allowed points without suicides that repeat a position: GNU Go 3.8 does not apply superko to suicides."""
    suicides = [point for point in allowed if is_suicide(turn, point)]
    return allowed - {point for point in suicides if after(size, size, turn.board, turn.to_play, point) in seen}


def is_suicide(turn: Turn, point: Point) -> bool:
    """True if a stone on the empty `point` neither has a liberty nor captures."""
    if neighbours(point) & turn.empty:
        return False
    own, other, breath = turn.board.stones(turn.to_play), turn.board.stones(-turn.to_play), turn.empty - {point}
    captures = any(not touches(region(stone, other), breath) for stone in neighbours(point) & other)
    return not captures and not touches(region(point, own | {point}), breath)


def touches(chain: Points, points: Points) -> bool:
    return any(neighbours(stone) & points for stone in chain)


def superko_of(game: RandomGame, number: int) -> Tally:
    """Counts one position, and whether superko forbids a point in it."""
    size, turn = game.rules.rows, game.turns[number]
    own = turn.board.stones(turn.to_play)
    before = game.turns[number - 1].board if number else None
    forbids = cycles = False
    for point in turn.empty - turn.legal:
        if not is_suicide(turn, point) or (game.rules.allow_suicide and neighbours(point) & own):
            forbids = True
            cycles |= after(size, size, turn.board, turn.to_play, point) != before
    return Tally(num_positions=1, num_superko=forbids, num_cycles=cycles)


def explanation(game: RandomGame, number: int, board: Board, allowed: Points) -> str:
    """The difference before move `number` (from 0), and how to reproduce it."""
    turn, colour = game.turns[number], GTP_COLOURS[game.turns[number].to_play]

    def names(points: Points) -> str:
        return " ".join(sorted(action_to_name(game.rules, r * game.rules.columns + c) for r, c in points)) or "none"

    return "\n".join(
        [
            f"Difference on {game.name}, after {number} moves, {colour} to play",
            f"legal by the kernels alone: {names(turn.legal - allowed)}",
            f"legal by GNU Go alone: {names(allowed - turn.legal)}",
            f"black stones on one side alone: {names(turn.board.black ^ board.black)}",
            f"white stones on one side alone: {names(turn.board.white ^ board.white)}",
            f"To see it: gnugo --mode gtp {' '.join(gnugo_options(game.rules.allow_suicide))}",
            *gtp_commands(game._replace(turns=game.turns[:number]), MAX_MOVES + 1),
            "showboard",
            f"all_legal {colour}",
        ]
    )


def compare_games(size: int, allow_suicide: bool, seed: int, num_positions: int) -> Tally:
    """Compares `num_positions` positions; all games but the last are complete.

    Raises:
      DifferenceError: at the first difference.
    """
    start = time.perf_counter()
    tally = Tally()
    with GnuGo(*gnugo_options(allow_suicide)) as gnugo:
        for number in count():
            left = num_positions - tally.num_positions
            if not left:
                break
            game = random_game(size, allow_suicide, seed, number)
            tally = tally.plus(compare(gnugo, game._replace(turns=game.turns[:left])))
    return tally._replace(seconds=time.perf_counter() - start)


def compare_sizes(sizes: Sequence[int], seed: int, num_positions: int, num_processes: int) -> dict[int, Tally]:
    """Compares an equal number of positions of each size, with and without suicide; large boards first, they are slow.

    Raises:
      DifferenceError: at the first difference.
    """
    pairs = [(size, allow_suicide) for size in sorted(sizes, reverse=True) for allow_suicide in (False, True)]
    share, rest = divmod(num_positions, len(pairs))
    tallies = dict.fromkeys(sizes, Tally())
    pool = ProcessPoolExecutor(num_processes, mp_context=get_context("spawn"))
    with pool, progress_of("rules", "positions") as progress:
        progress(0, num_positions)
        runs = {
            pool.submit(compare_games, size, allow_suicide, seed, share + (i < rest)): size
            for i, (size, allow_suicide) in enumerate(pairs)
        }
        try:
            for run in as_completed(runs):
                tallies[runs[run]] = tallies[runs[run]].plus(run.result())
                progress(sum(tally.num_positions for tally in tallies.values()), num_positions)
        except DifferenceError:
            pool.shutdown(cancel_futures=True)
            raise
    return tallies


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status 0: no difference; 1: a difference, which it prints; 2: it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.games.differential", description="Go against GNU Go 3.8.")
    parser.add_argument("--positions", type=positive, default=100_000, help="evenly over sizes, and suicide off and on")
    parser.add_argument("--processes", type=positive, default=2)
    parser.add_argument("--seed", type=positive, default=1)
    parser.add_argument("--sizes", type=sizes_of, default=f"{SMALLEST}-{LARGEST}", help="of the board: 9, or 2-19")
    options = parser.parse_args(arguments)
    if not is_installed():
        parser.error(MISSING)
    start = time.perf_counter()
    try:
        tallies = compare_sizes(options.sizes, options.seed, options.positions, options.processes)
    except DifferenceError as difference:
        print(difference)
        return 1
    total = Tally()
    for size, tally in tallies.items():
        print(f"{f'{size}x{size}':>5}: {tally}")
        total = total.plus(tally)
    print(f"total: {total._replace(seconds=time.perf_counter() - start)}")
    return 0


def positive(text: str) -> int:
    """A number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def sizes_of(text: str) -> range:
    """The range of sizes for a text such as "9" or "2-19"."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} names no sizes; write 9 or 2-19")
    sizes = range(int(first), int(last or first) + 1)
    if not sizes or sizes[0] < SMALLEST or sizes[-1] > LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not within {SMALLEST}-{LARGEST}")
    return sizes


if __name__ == "__main__":
    sys.exit(main())

"""The clock of a game: whose time passes, the increment, and positions to which a game goes back."""

import math

import pytest

from zero.games.position import BLACK, WHITE
from zero.web.game_clock import GameClock


class Now:
    """A time that a test sets."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Now:
    return Now()


def times(clock: GameClock) -> tuple[float, float]:
    return clock.left(BLACK), clock.left(WHITE)


def test_time_passes_for_one_player_and_a_move_adds_the_increment(now: Now) -> None:
    clock = GameClock(60.0, 5.0, now)
    now.seconds += 7
    assert times(clock) == (60.0, 60.0), "it stands still at first"
    clock.run(BLACK)
    now.seconds += 7
    assert times(clock) == (53.0, 60.0)
    clock.run(BLACK)  # again, as after a change that is not a move
    now.seconds += 3
    clock.move(BLACK)
    assert (times(clock), clock.running) == ((55.0, 60.0), None)
    now.seconds += 100
    clock.run(WHITE)
    now.seconds += 61
    assert times(clock) == (55.0, 0.0)


def test_going_back_restores_the_time_at_that_position(now: Now) -> None:
    clock = GameClock(60.0, 0.0, now)
    for colour in (BLACK, WHITE, BLACK):
        clock.run(colour)
        now.seconds += 10
        clock.move(colour)
    assert times(clock) == (40.0, 50.0)
    clock.run(WHITE)
    now.seconds += 99
    clock.set_moves(1)
    assert (times(clock), clock.running) == ((50.0, 60.0), None)
    clock.set_moves(4)
    assert times(clock) == (50.0, 60.0), "moves of a file cost no time"
    clock.set_moves(0)
    assert times(clock) == (60.0, 60.0)


def test_without_a_limit_time_is_never_over(now: Now) -> None:
    clock = GameClock(math.inf, 0.0, now)
    clock.run(BLACK)
    now.seconds += 1e9
    assert clock.left(BLACK) == math.inf and not clock.has_limit

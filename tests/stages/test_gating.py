"""The result of a match, and the decision on the promotion."""

import pytest

from tests.made_games import plain_record
from tests.made_generations import made_match
from zero.data.records import read_records, write_records
from zero.stages.gating import decide, match_result
from zero.statistics import wilson_interval
from zero.storage.manifests import Colours, GameRecord, MatchResult


@pytest.mark.parametrize(
    ("wins", "losses", "draws", "threshold", "promoted"),
    [
        (219, 180, 1, 0.55, False),  # 219.5 points
        (219, 179, 2, 0.55, True),  # 220 points
        (0, 0, 400, 0.5, True),
        (399, 0, 1, 1.0, False),
        (0, 400, 0, 0.0, True),
        (11, 9, 0, 0.55, True),
        (10, 9, 1, 0.55, False),
    ],
)
def test_the_challenger_is_promoted_if_its_score_reaches_the_threshold(wins, losses, draws, threshold, promoted):
    assert decide(made_match(wins, losses, draws), threshold) is promoted


def test_rounding_does_not_move_a_threshold():
    for percent in range(101):
        assert decide(made_match(4 * percent, 400 - 4 * percent), percent / 100)
        if percent:
            assert not decide(made_match(4 * percent - 1, 400 - 4 * percent, 1), percent / 100)


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # the complements: intervals of the losses
        (182, 263, 0.6338, 0.7447),
        (20, 20, 0.8389, 1.0000),
    ],
)
def test_the_interval_has_the_published_values(wins, games, low, high):
    assert wilson_interval(wins / games, games) == pytest.approx((low, high), abs=5e-5)


def record(game: int, outcome: int, actions: tuple[int, ...]) -> GameRecord:
    names = ("challenger", "champion") if game % 2 == 0 else ("champion", "challenger")
    return plain_record(actions, outcome=outcome, game=game, black=names[0], white=names[1])


def counted(*records: GameRecord) -> MatchResult:
    return match_result(read_records(write_records(records), "match"))


def test_a_match_is_counted_by_colour():
    # The challenger has Black in games 0, 2, 4 and White in games 1, 3, 5, 7.
    match = counted(
        record(0, +1, (0, 1)),
        record(1, +1, (0, 2)),
        record(2, -1, (0, 3)),
        record(3, -1, (0, 4)),
        record(4, 0, (0, 5)),
        record(5, -1, (0, 6)),
        record(7, -1, (0, 7, 8, 1)),
    )
    assert match.as_black == Colours(wins=1, losses=1, draws=1)
    assert match.as_white == Colours(wins=3, losses=1, draws=0)
    assert (match.wins, match.losses, match.draws) == (4, 2, 1)
    assert match.score == 4.5 / 7
    assert match.interval == wilson_interval(4.5 / 7, 7)
    assert match.mean_length == 16 / 7


def test_colours_depend_on_the_number_of_a_game_and_not_on_its_index():
    match = counted(record(5, -1, (0, 1)), record(8, -1, (0, 2)))
    assert (match.as_white.wins, match.as_black.losses) == (1, 1)


def test_unique_games_differ_in_their_moves():
    # A game that is a prefix of another game counts as different.
    moves = [(0, 1), (0, 1), (0, 1, 2), (1, 0), (0,), (0, 1, 2)]
    assert counted(*(record(game, 1, actions) for game, actions in enumerate(moves))).unique_games == 4

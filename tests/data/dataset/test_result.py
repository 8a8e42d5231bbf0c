"""Results, ratings and komi as servers and people write them."""

import pytest

from zero.data.dataset.result import DeclaredRating, GameResult, parse_rating, parse_result
from zero.data.sgf import parse_komi


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B+R", GameResult(1, 0.0, "resignation")),
        ("W+Resign", GameResult(-1, 0.0, "resignation")),
        ("W+Res.", GameResult(-1, 0.0, "resignation")),
        ("B+T", GameResult(1, 0.0, "time")),
        ("W+Time", GameResult(-1, 0.0, "time")),
        ("B+F", GameResult(1, 0.0, "forfeit")),
        ("W+Forf.", GameResult(-1, 0.0, "forfeit")),
        ("W+3.5", GameResult(-1, -3.5, "score")),
        ("B+1.50", GameResult(1, 1.5, "score")),
        ("b + 12", GameResult(1, 12.0, "score")),
        ("B+0,5", GameResult(1, 0.5, "score")),
        ("B+", GameResult(1, 0.0, "unknown")),
        ("0", GameResult(0, 0.0, "score")),
        ("Draw", GameResult(0, 0.0, "score")),
        ("Jigo", GameResult(0, 0.0, "score")),
    ],
)
def test_a_result_names_the_winner_for_black(text, expected):
    assert parse_result(text) == expected


@pytest.mark.parametrize("text", ["", "?", "Void", "B", "B+0", "B+R W+R", "B+1e9", "B+nan", "W-3", "黒中押勝"])
def test_a_text_that_is_not_a_result_gives_none(text):
    assert parse_result(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5d", DeclaredRating(True, 5.0)),
        ("1k", DeclaredRating(True, 0.0)),
        ("12k?", DeclaredRating(True, -11.0)),
        ("7.3k", DeclaredRating(True, -6.3)),
        ("2 dan", DeclaredRating(True, 2.0)),
        ("1p", DeclaredRating(True, 10.0)),
        ("9段", DeclaredRating(True, 9.0)),
        ("1850", DeclaredRating(False, 1850.0)),
        ("2311?", DeclaredRating(False, 2311.0)),
        ("?", None),
        ("-", None),
        ("", None),
        ("strong", None),
    ],
)
def test_ratings(text, expected):
    rating = parse_rating(text)
    if expected is None:
        assert rating is None
    else:
        assert rating is not None and rating.is_rank == expected.is_rank
        assert rating.value == pytest.approx(expected.value)


@pytest.mark.parametrize(
    ("text", "komi"),
    [
        ("6.50", 6.5),
        ("0", 0.0),
        ("-5.5", -5.5),
        ("6,5", 6.5),
        ("6.500000", 6.5),
        (".5", 0.5),
        ("375", 375.0),
        ("six", None),
        ("nan", None),
        ("", None),
    ],
)
def test_komi(text, komi):
    assert parse_komi(text) == komi

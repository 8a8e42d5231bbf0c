"""Lines of an analysis, read as Sabaki and Lizzie read them."""

import re

import numpy as np
import pytest

from tests.interop.gtp.engines import GO5, ask, engine, stones
from zero.games.coordinates import name_to_action
from zero.interop.gtp import thinking
from zero.interop.gtp.analysis import MAX_LINE_MOVES, kata_line, leela_zero_line, told_moves, winrate
from zero.play.search_result import SearchResult
from zero.statistics import wilson_interval


def found(visits, values=None, root_value=0.2):
    """A result: visits and values by point names."""
    counts, q_values = np.zeros(26, np.int32), np.zeros(26, np.float32)
    for name, number in visits.items():
        counts[name_to_action(GO5, name)] = number
    for name, value in (values or {}).items():
        q_values[name_to_action(GO5, name)] = value
    prior = np.linspace(0.0, 2 / 26, 26, dtype=np.float32)
    return SearchResult(counts, q_values, prior, np.ones(26, np.bool_), root_value, (), 10, 11, 0.1)


def line_of(action):
    return (action, 25, 0)


def as_sabaki(line):
    """The variations of a line, by the rules of Sabaki's parser: pairs up to `pv`, then names up to the first pass."""
    variations = []
    for part in re.split(r"\s*info\s+", line)[1:]:
        match = re.search(r"(pass|[A-Za-z]\d+)(\s+(pass|[A-Za-z]\d+))*$", part.strip())
        assert match
        words = part.strip()[: match.start()].split()[:-1]
        fields = dict(zip(words[::2], words[1::2], strict=True))
        rate = fields["winrate"]
        fields["percent"] = float(rate) * 100 if "." in rate else float(rate) / 100
        fields["pv"] = match[0].split("pass")[0].split()
        if re.fullmatch(r"[A-Za-z]\d+", fields["move"]):
            variations.append(fields)
    return variations


def as_lizzie(line):
    """The moves of a line, by the rules of Lizzie's parser: winrates are whole numbers of ten thousandths."""
    moves = {}
    for part in line.removeprefix("info ").split(" info "):
        words = part.split()
        at = words.index("pv")
        fields = dict(zip(words[:at:2], words[1:at:2], strict=True))
        moves[fields["move"]] = (int(fields["visits"]), int(fields["winrate"]) / 100, words[at + 1 :])
    return moves


RESULT = found({"C3": 60, "D3": 30, "pass": 10}, {"C3": 0.5, "D3": -1.0, "pass": 1.0})


def test_lizzie_reads_visits_winrates_and_lines():
    assert as_lizzie(leela_zero_line(GO5, RESULT, line_of)) == {
        "C3": (60, 75.0, ["C3", "pass", "A5"]),
        "D3": (30, 0.0, ["D3", "pass", "A5"]),
        "pass": (10, 100.0, ["pass", "pass", "A5"]),
    }


@pytest.mark.parametrize("line", [leela_zero_line, kata_line])
def test_sabaki_reads_both(line):
    variations = as_sabaki(line(GO5, RESULT, line_of))
    assert [fields["move"] for fields in variations] == ["C3", "D3"]  # Sabaki passes over a pass
    assert [fields["percent"] for fields in variations] == pytest.approx([75.0, 0.0])
    assert [fields["order"] for fields in variations] == ["0", "1"]
    assert [fields["pv"] for fields in variations] == [["C3"], ["D3"]]


def test_shares_are_ten_thousandths_for_leela_zero_and_fractions_for_katago():
    low = wilson_interval(0.75, 60)[0]
    prior = RESULT.prior[name_to_action(GO5, "C3")]
    lz, kata = (as_sabaki(line(GO5, RESULT, line_of))[0] for line in (leela_zero_line, kata_line))
    assert (lz["prior"], lz["lcb"]) == (str(round(10000 * prior)), str(round(10000 * low)))
    assert (float(kata["prior"]), float(kata["lcb"])) == pytest.approx((prior, low), abs=1e-6)
    assert float(kata["utility"]) == pytest.approx(0.5)


def test_without_visits_the_likeliest_moves_are_told_with_the_value_of_the_position():
    moves = as_lizzie(leela_zero_line(GO5, found({}), line_of))
    assert list(moves) == ["pass", "E1", "D1", "C1", "B1"]
    assert all(visits == 0 and percent == 60.0 for visits, percent, _ in moves.values())


def test_as_many_moves_are_told_as_asked_for():
    assert len(told_moves(RESULT)) == 3
    assert len(told_moves(RESULT, 2)) == 2
    assert list(as_lizzie(leela_zero_line(GO5, RESULT, line_of, 1))) == ["C3"]


def test_long_lines_are_cut():
    line = leela_zero_line(GO5, found({"C3": 1}), lambda action: (action,) * 500)
    assert len(as_lizzie(line)["C3"][2]) == MAX_LINE_MOVES


@pytest.mark.parametrize(("value", "chance"), [(-1, 0), (0, 0.5), (1, 1), (-1.0000001, 0), (1.0000001, 1)])
def test_a_value_is_a_chance_to_win(value, chance):
    assert winrate(value) == chance


def test_leela_zeros_analysis_tells_one_line_when_it_is_interrupted_at_once():
    one = engine()
    moves = as_lizzie(ask(one, "lz-analyze b 10"))
    assert sum(visits for visits, _, _ in moves.values()) == 30
    assert all(name == line[0] for name, (_, _, line) in moves.items())
    assert any(len(line) > 1 for _, _, line in moves.values())
    assert stones(one) == set()


def test_katagos_analysis_sees_the_position_with_the_colour_that_is_asked_for():
    one = engine()
    ask(one, "play b C3")
    whites, blacks = (as_sabaki(ask(one, f"kata-analyze {colour} interval 10"))[0] for colour in "wb")
    assert whites["winrate"] != blacks["winrate"]
    assert as_sabaki(ask(one, "kata-analyze 10 maxmoves 2 ownership true avoid b C3 5"))[0]["move"]


@pytest.mark.parametrize("prefix", ["lz", "kata"])
def test_a_move_with_analysis_is_the_move_without(prefix):
    one, other = engine(), engine()
    *infos, play = ask(one, f"{prefix}-genmove_analyze b 10").split("\n")
    assert play == f"play {ask(other, 'genmove b')}"
    assert infos
    assert all(line.startswith("info move") for line in infos)
    assert stones(one) == stones(other)


@pytest.mark.parametrize("prefix", ["lz", "kata"])
def test_an_analysis_whose_first_round_is_over_with_the_root_goes_on(prefix, monkeypatch):
    for name in ("LEAST_INTERVAL_SECONDS", "LEAST_SEARCH_SECONDS"):
        monkeypatch.setattr(thinking, name, 1e-9)
    one, other = engine(), engine()
    *infos, play = ask(one, f"{prefix}-genmove_analyze b 0").split("\n")
    assert play == f"play {ask(other, 'genmove b')}"
    assert len(infos) > 2

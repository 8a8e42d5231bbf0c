"""Lines of an analysis, parsed like Sabaki and Lizzie do."""

import re

import numpy as np
import pytest

from tests.interop.engines import GO5, answer, engine, stones
from zero.games.coordinates import name_to_action
from zero.interop import gtp_analysis as analysis
from zero.interop.gtp_analysis import MAX_VARIATION_MOVES, analysis_line, reported_moves, winrate
from zero.play.search_result import SearchResult
from zero.statistics import wilson_interval


def found(visits, values=None, root_value=0.2):
    """A search result with visits and values by point names."""
    counts, q_values = np.zeros(26, np.int32), np.zeros(26, np.float32)
    for name, number in visits.items():
        counts[name_to_action(GO5, name)] = number
    for name, value in (values or {}).items():
        q_values[name_to_action(GO5, name)] = value
    prior = np.linspace(0.0, 2 / 26, 26, dtype=np.float32)
    return SearchResult(counts, q_values, prior, np.ones(26, np.bool_), root_value, 10)


def variation(action):
    return (action, 25, 0)


def as_sabaki(line):
    """Variations of a line, as Sabaki parses them: pairs up to `pv`, then names up to the first pass."""
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
    """Moves of a line, as Lizzie parses them: winrates are integers in units of 1/10,000."""
    moves = {}
    for part in line.removeprefix("info ").split(" info "):
        words = part.split()
        at = words.index("pv")
        fields = dict(zip(words[:at:2], words[1:at:2], strict=True))
        moves[fields["move"]] = (int(fields["visits"]), int(fields["winrate"]) / 100, words[at + 1 :])
    return moves


RESULT = found({"C3": 60, "D3": 30, "pass": 10}, {"C3": 0.5, "D3": -1.0, "pass": 1.0})


def test_lizzie_parses_visits_winrates_and_variations():
    assert as_lizzie(analysis_line(GO5, RESULT, variation)) == {
        "C3": (60, 75.0, ["C3", "pass", "A5"]),
        "D3": (30, 0.0, ["D3", "pass", "A5"]),
        "pass": (10, 100.0, ["pass", "pass", "A5"]),
    }


def test_sabaki_parses_the_same():
    variations = as_sabaki(analysis_line(GO5, RESULT, variation))
    assert [fields["move"] for fields in variations] == ["C3", "D3"]  # Sabaki skips a pass
    assert [fields["percent"] for fields in variations] == pytest.approx([75.0, 0.0])
    assert [fields["order"] for fields in variations] == ["0", "1"]
    assert [fields["pv"] for fields in variations] == [["C3"], ["D3"]]
    low = wilson_interval(0.75, 60)[0]
    prior = RESULT.prior[name_to_action(GO5, "C3")]
    assert (variations[0]["prior"], variations[0]["lcb"]) == (str(round(10000 * prior)), str(round(10000 * low)))


def test_without_visits_the_moves_with_the_highest_priors_are_reported():
    moves = as_lizzie(analysis_line(GO5, found({}), variation))
    assert list(moves) == ["pass", "E1", "D1", "C1", "B1"]
    assert all(visits == 0 and percent == 60.0 for visits, percent, _ in moves.values())


def test_the_number_of_reported_moves_is_limited():
    assert len(reported_moves(RESULT)) == 3
    assert len(reported_moves(RESULT, 2)) == 2
    assert list(as_lizzie(analysis_line(GO5, RESULT, variation, 1))) == ["C3"]


def test_long_variations_are_cut():
    line = analysis_line(GO5, found({"C3": 1}), lambda action: (action,) * 500)
    assert len(as_lizzie(line)["C3"][2]) == MAX_VARIATION_MOVES


@pytest.mark.parametrize(("value", "chance"), [(-1, 0), (0, 0.5), (1, 1), (-1.0000001, 0), (1.0000001, 1)])
def test_a_winrate_is_a_scaled_value(value, chance):
    assert winrate(value) == chance


def test_an_analysis_that_is_interrupted_at_once_reports_one_line(monkeypatch):
    monkeypatch.setattr("zero.interop.gtp_analysis.POLL_SECONDS", 60.0)  # a busy machine completes the search too
    one = engine()
    moves = as_lizzie(answer(one, "lz-analyze b 6000"))
    assert sum(visits for visits, _, _ in moves.values()) == 30
    assert all(name == line[0] for name, (_, _, line) in moves.items())
    assert any(len(line) > 1 for _, _, line in moves.values())
    assert stones(one) == set()


def test_an_analysis_uses_the_requested_colour():
    one = engine()
    answer(one, "play b C3")
    whites, blacks = (as_sabaki(answer(one, f"lz-analyze {colour} interval 10"))[0] for colour in "wb")
    assert whites["winrate"] != blacks["winrate"]
    assert as_sabaki(answer(one, "lz-analyze 10 maxmoves 2 minmoves 1 avoid b C3 5"))[0]["move"]


def test_a_move_with_analysis_equals_the_move_without():
    one, other = engine(), engine()
    *infos, play = answer(one, "lz-genmove_analyze b 10").split("\n")
    assert play == f"play {answer(other, 'genmove b')}"
    assert infos
    assert all(line.startswith("info move") for line in infos)
    assert stones(one) == stones(other)


def test_an_analysis_continues_if_its_first_round_evaluates_only_the_root(monkeypatch):
    for name in ("MIN_INTERVAL_SECONDS", "MIN_SEARCH_SECONDS"):
        monkeypatch.setattr(analysis, name, 1e-9)
    one, other = engine(), engine()
    *infos, play = answer(one, "lz-genmove_analyze b 0").split("\n")
    assert play == f"play {answer(other, 'genmove b')}"
    assert len(infos) > 2

"""Conclusions from two matches and two profiles."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.project import git
from zero.audit.reproduce import _match
from zero.audit.results import Compared, Reproduction, Score, StageResult, compare_scores
from zero.cli.audit import lines_about
from zero.statistics import wilson_interval
from zero.storage.layout import GATING_METRICS


def score(wins: int, games: int) -> Score:
    return Score(score=wins / games, interval=wilson_interval(wins / games, games))


def test_the_interval_is_that_of_newcombes_first_example() -> None:
    found = compare_scores(score(48, 80), score(56, 70))
    assert found.difference == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert not found.agrees


def test_the_order_of_the_matches_changes_the_sign_only() -> None:
    there, back = compare_scores(score(9, 10), score(3, 10)), compare_scores(score(3, 10), score(9, 10))
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))


def test_equal_scores_agree() -> None:
    assert compare_scores(score(220, 400), score(220, 400)).agrees


def reproduction(*outs: Compared, lock_equal: bool | None = True) -> Reproduction:
    return Reproduction(
        tag="go9/gen-0001",
        commit="0" * 40,
        kind="decision",
        num_inputs=5,
        profile_then={"isa": "AVX2", "torch": "2.12"},
        profile_now={"isa": "AVX2", "torch": "2.13", "openvino": "2026.4"},
        stages=(StageResult(stage="selfplay", seconds=1.0, outs=outs),),
        lock_equal=lock_equal,
    )


SAME = Compared(path="data/games", then="1", now="1")


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        (reproduction(SAME), True),
        (reproduction(SAME, lock_equal=None), True),
        (reproduction(SAME, lock_equal=False), False),
        (reproduction(SAME, Compared(path="data/match", then="1", now="2")), False),
        (reproduction(Compared(path="metrics/gating.json", then="1", now="1", first="promoted")), False),
    ],
)
def test_a_reproduction_is_equal_if_every_digest_and_the_lock_are(found: Reproduction, equal: bool) -> None:
    assert found.equal is equal


def test_profiles_are_compared_by_name() -> None:
    assert reproduction(SAME).other_profile == {"torch": ("2.12", "2.13"), "openvino": ("-", "2026.4")}


def test_the_scores_of_a_match_that_came_out_differently_are_compared(tmp_path: Path) -> None:
    """From the metrics at the tag and in the clone; equal ones are not compared."""
    metrics = tmp_path / GATING_METRICS
    metrics.parent.mkdir()
    then, now = score(10, 16), score(9, 16)
    metrics.write_text(json.dumps({"match": then.model_dump()}))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "recorded")
    metrics.write_text(json.dumps({"match": now.model_dump()}))
    differs = Compared(path=GATING_METRICS, then="", now="", first="score")
    found = reproduction(differs, lock_equal=False)
    assert _match(tmp_path, reproduction(SAME).stages) is None
    match = _match(tmp_path, found.stages)
    assert match == compare_scores(then, now) and match is not None and match.agrees
    message = lines_about(found.model_copy(update={"match": match}))
    assert "recorded 62.5%, reproduced 56.2%, difference -6.2%" in " ".join(message)
    assert "compatible with chance" in " ".join(message)

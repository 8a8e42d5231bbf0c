"""The stages of a tag, read from its own files; conclusions from compared outputs and two profiles."""

from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR
from zero.audit.recompute import (
    ComparedOutput,
    StageResult,
    check_stages,
    out_hashes,
    stages_of,
)
from zero.audit.reproduce import Reproduction
from zero.errors import LineageError


def test_stages_run_after_those_that_they_need_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    text = """
stages:
  gating:
    cmd: c
    deps: [models/challenger, zero/stages/gating.py]
    outs: [data/match]
    metrics: [{metrics/gating.json: {cache: false}}]
  training:
    cmd: b
    deps: [data/games]
    outs: [models/challenger]
    plots: [{plots/training.csv: {x: step}}]
  selfplay:
    cmd: a
    outs: [data/games]
"""
    (tmp_path / "dvc.yaml").write_text(text)
    assert [*stages_of(tmp_path).items()] == [
        ("selfplay", ("data/games",)),
        ("training", ("models/challenger", "plots/training.csv")),
        ("gating", ("data/match", "metrics/gating.json")),
    ]


def test_our_own_stages_are_in_the_order_of_the_file() -> None:
    assert [*stages_of(SOURCE_DIR)][:4] == ["selfplay", "replay", "training", "gating"]


def test_hashes_are_read_by_path() -> None:
    lock = "schema: '2.0'\nstages:\n  replay:\n    cmd: c\n    outs:\n    - path: data/window\n      md5: 12.dir\n"
    assert out_hashes(lock, "replay") == {"data/window": "12.dir"}
    assert out_hashes(lock, "gating") == {}


@pytest.mark.parametrize("declared", [(), ("a",), ("a", "b", "c")])
def test_a_lock_of_other_stages_is_refused(declared: tuple[str, ...]) -> None:
    """DVC keeps undeclared stages in the lock file, which would therefore come out the same."""
    lock = "schema: '2.0'\nstages:\n  a: {cmd: a}\n  b: {cmd: b}\n"
    check_stages(("b", "a"), lock)
    with pytest.raises(LineageError, match="the record cannot be recomputed completely"):
        check_stages(declared, lock)


def reproduction(*outs: ComparedOutput, lock_equal: bool | None = True) -> Reproduction:
    return Reproduction(
        tag="go9/gen-0001",
        commit="0" * 40,
        kind="decision",
        profile_then={"isa": "AVX2", "torch": "2.12"},
        profile_now={"isa": "AVX2", "torch": "2.13", "openvino": "2026.4"},
        stages=(StageResult(stage="selfplay", seconds=1.0, outs=outs),),
        lock_equal=lock_equal,
    )


SAME = ComparedOutput(path="data/games", then="1", now="1")


@pytest.mark.parametrize(
    ("found", "equal"),
    [
        (reproduction(SAME), True),
        (reproduction(SAME, lock_equal=None), True),
        (reproduction(SAME, lock_equal=False), False),
        (reproduction(SAME, ComparedOutput(path="data/match", then="1", now="2")), False),
        (reproduction(ComparedOutput(path="metrics/gating.json", then="1", now="1", first="promoted")), False),
    ],
)
def test_a_reproduction_is_equal_if_every_digest_and_the_lock_are(found: Reproduction, equal: bool) -> None:
    assert found.equal is equal


def test_profiles_are_compared_by_name() -> None:
    assert reproduction(SAME).other_profile == {"torch": ("2.12", "2.13"), "openvino": ("-", "2026.4")}

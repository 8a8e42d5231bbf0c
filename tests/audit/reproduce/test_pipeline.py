"""The stages of a tag, read from its own files."""

from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR
from zero.audit.reproduce.pipeline import check_stages, out_hashes, stages_of
from zero.errors import LineageError


def pipeline(folder: Path, text: str) -> Path:
    (folder / "dvc.yaml").write_text(text)
    return folder


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
    assert stages_of(pipeline(tmp_path, text)) == {
        "selfplay": ("data/games",),
        "training": ("models/challenger", "plots/training.csv"),
        "gating": ("data/match", "metrics/gating.json"),
    }


def test_our_own_stages_are_in_the_order_of_the_file() -> None:
    assert [*stages_of(SOURCE_DIR)][:4] == ["selfplay", "replay", "training", "gating"]


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    text = "stages:\n  a: {cmd: a, deps: [x], outs: [y]}\n  b: {cmd: b, deps: [y], outs: [x]}\n"
    with pytest.raises(LineageError, match=r"the stages a, b of .* depend on each other"):
        stages_of(pipeline(tmp_path, text))


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


def test_a_text_that_is_not_a_lock_file_is_refused() -> None:
    with pytest.raises(LineageError, match="cannot be read"):
        out_hashes("stages: [1, 2]", "replay")

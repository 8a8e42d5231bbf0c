"""Training from nothing on the games of a seed: equal to the stage, compared with variants."""

import csv
from pathlib import Path

import pytest

from benchmarks.starts import curves_csv, curves_png, table_of, train_start
from benchmarks.variants import AS_IT_IS
from tests.made_games import made_params, write_games, write_workspace
from zero.errors import ParamsError
from zero.stages import replay
from zero.stages.training import curve_text, run
from zero.storage.store import Store

VARIANT = "training.warmup_steps=10"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "seed-1"
    write_workspace(folder, made_params())
    replay.run(folder, Store(str(folder / "store")))
    return folder


def test_the_unchanged_recipe_equals_the_stage(workspace: Path, tmp_path: Path) -> None:
    start = train_start(workspace, AS_IT_IS, 10, tmp_path)
    checkpoint = run(workspace)
    assert curve_text(start.curve) == (workspace / "plots/training.csv").read_text()
    trained = (workspace / "models/challenger" / checkpoint.weights.path).read_bytes()
    assert (tmp_path / "after/weights.safetensors").read_bytes() == trained
    before = (workspace / "state/trainee/weights.safetensors").read_bytes()
    assert (tmp_path / "before/weights.safetensors").read_bytes() == before


def test_variants_are_rows_curves_and_panels(workspace: Path, tmp_path: Path) -> None:
    starts = [train_start(workspace, variant, 10, tmp_path / variant) for variant in (AS_IT_IS, VARIANT)]
    assert table_of(starts, []).row_count == 2
    rows = list(csv.DictReader(curves_csv(starts).decode().splitlines()))
    assert [row["variant"] for row in rows] == [AS_IT_IS] * 4 + [VARIANT] * 4
    rates = [float(row["learning_rate"]) for row in rows if row["variant"] == VARIANT]
    assert rates == pytest.approx([0.3 * rates[-1], 0.6 * rates[-1], 0.9 * rates[-1], rates[-1]])
    assert curves_png(starts).startswith(b"\x89PNG")


def test_the_window_of_a_later_generation_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    write_workspace(folder, made_params())
    write_games(folder, 2)
    replay.run(folder, Store(str(folder / "store")))
    with pytest.raises(ParamsError, match="has the window of generation 2; give one of generation 1"):
        train_start(folder, AS_IT_IS, 10, tmp_path / "out")

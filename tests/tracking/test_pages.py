"""Content of the runs of a generation, without a server."""

from pathlib import Path

import pytest

from tests.made_generations import made_entry, made_stage_costs, recorded_in
from tests.parameters import preset
from zero.config.params import preset_text
from zero.network.health import Health
from zero.record.costs import GenerationCosts
from zero.record.generation import Generation
from zero.storage.files import canonical_json, canonical_line, write_atomic
from zero.tracking.pages import MetricPoint, check_metrics, cost_points, flatten, generation_page, training_curve


def test_flat_parameters_are_complete():
    params = preset("smoke")
    flat = flatten(params)
    assert flat["game.size"] == "5"
    assert flat["training.learning_rate.1.from_step"] == "20000"
    assert flat["search.tree_reuse"] == "True"
    single = {
        f"{name}.{field}"
        for name, section in params
        if name not in ("seed", "dataset")
        for field in type(section).model_fields
    }
    elsewhere = {"training.learning_rate"}  # one entry per step
    elsewhere |= {
        "network.pooled_heads",
        "training.search_value_weight",
        "selfplay.overlap",
        "selfplay.considered_actions",
        "selfplay.surprise_weight",
        "network.zero_init_residual",
        "network.near_zero_outputs",
        "search.pass_wins",
        "training.value_loss",
        "training.warmup_steps",
    }  # omitted if they are off
    assert {name for name in flat if "learning_rate." not in name} == single - elsewhere | {"seed"}


def generation_with(folder: Path, costs: GenerationCosts | None = None, health: Health | None = None) -> Generation:
    """Generation 7 of a made lineage in a folder, with costs and health as given."""
    write_atomic(folder / "params.yaml", preset_text("smoke").encode())
    write_atomic(folder / "record/ledger.jsonl", canonical_line(made_entry(7, kind="branch")))
    if health is not None:
        write_atomic(folder / "metrics/training.json", canonical_json({"health": health.model_dump(mode="json")}))
    made = recorded_in(folder)
    made.costs = costs
    return made


def test_costs_are_metrics_in_total_and_by_stage(tmp_path):
    training = made_stage_costs(seconds=10.0)
    selfplay = training.model_copy(update={"games": 24, "evaluations": 2400})
    stages = {"selfplay": selfplay, "training": training}
    points = cost_points(generation_with(tmp_path, GenerationCosts(lineage="go9", generation=7, stages=stages)))
    assert {point.step for point in points} == {7}
    assert (
        MetricPoint("6-cost/seconds", 20.0, 7) in points and MetricPoint("6-cost/3-training/seconds", 10.0, 7) in points
    )
    assert MetricPoint("6-cost/evaluations", 2400.0, 7) in points


def test_without_a_note_there_are_no_costs(tmp_path):
    assert cost_points(generation_with(tmp_path)) == []


def test_metrics_of_replay_and_verification_carry_the_name_of_their_stage(tmp_path):
    write_atomic(tmp_path / "metrics/replay.json", b'{"num_games": 24, "late_value_agreement": 0.75}')
    write_atomic(tmp_path / "metrics/verification.json", b'{"selfplay": {"num_games": 12, "shards": [0, 1]}}')
    assert dict(check_metrics(generation_with(tmp_path))) == {
        "2-replay/num_games": 24.0,
        "2-replay/late_value_agreement": 0.75,
        "5-verification/selfplay_num_games": 12.0,
    }


def test_a_generation_of_older_code_has_no_metrics_of_replay_and_verification(tmp_path):
    assert list(check_metrics(generation_with(tmp_path))) == []


def test_the_description_warns_of_a_dead_training(tmp_path):
    health = Health(verdict="dead", explained_variance=-2.0, findings=("100% of the values are saturated",))
    note = generation_page(generation_with(tmp_path, health=health)).tags["mlflow.note.content"]
    assert note.startswith("**Training: dead; the value explains -200% of the variance of its targets.**")
    assert "**Warning: 100% of the values are saturated.**" in note
    assert "the next generation restarts" in note
    healthy = health.model_copy(update={"verdict": "healthy", "findings": ()})
    for name, other in (("healthy", healthy), ("unchecked", None)):
        page = generation_page(generation_with(tmp_path / name, health=other))
        assert "Warning:" not in page.tags["mlflow.note.content"]


def test_the_curve_shows_the_explained_variance_if_the_loss_of_the_constant_predictor_is_known(tmp_path):
    text = b"step,value_loss,constant_value_loss\n20,0.2,0.25\n40,0.1,0.0\n"
    write_atomic(tmp_path / "plots/training.csv", text)
    points = training_curve(generation_with(tmp_path))
    (found,) = [point for point in points if point.name == "explained_variance"]
    assert found.value == pytest.approx(0.2)
    assert found.step == 20
    write_atomic(tmp_path / "plots/training.csv", b"step,value_loss\n20,0.2\n")
    assert training_curve(generation_with(tmp_path)) == (MetricPoint("value_loss", 0.2, 20),)

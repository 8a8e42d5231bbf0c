"""The health checks, on curves of healthy trainings, dead ones, and ones that cannot be judged."""

from typing import Any

import pytest

from zero.errors import StorageError
from zero.network.health import Health, health_of, recorded_health
from zero.network.learner import StepResult
from zero.storage.files import canonical_json

HEALTHY = StepResult(
    step=0,
    loss=3.6,
    policy_loss=3.2,
    value_loss=0.19,
    ownership_loss=0.4,
    score_loss=0.0,
    learning_rate=0.05,
    policy_accuracy=0.1,
    policy_entropy=3.0,
    constant_value_loss=0.27,
    saturated_values=0.0,
    value_deviation=0.29,
    policy_gradient_norm=0.28,
    value_gradient_norm=0.17,
    trunk_gradient_norm=0.5,
)
DEAD = HEALTHY._replace(value_loss=0.9, saturated_values=1.0, value_deviation=0.0, value_gradient_norm=0.0)
"""The last line of seed 1 of 2026-11-24, whose value head saturated in the first 20 steps."""


def curve(*lines: StepResult) -> list[StepResult]:
    return [line._replace(step=20 * number) for number, line in enumerate(lines, 1)]


def judged(*lines: StepResult, num_steps: int = 1500) -> Health:
    return health_of(curve(*lines), num_steps)


def test_a_value_head_that_learns_is_healthy():
    health = judged(*[HEALTHY] * 8)
    assert health.verdict == "healthy"
    assert health.findings == ()
    assert health.explained_variance == pytest.approx(1 - 0.19 / 0.27)


def test_a_saturated_value_head_is_dead_and_each_sign_is_reported():
    health = judged(*[DEAD] * 8)
    assert health.verdict == "dead"
    assert health.explained_variance == pytest.approx(1 - 0.9 / 0.27)
    does_not_beat, saturated, constant, vanished = health.findings
    assert does_not_beat == "the value loss 0.9 does not beat 0.27, the loss of the best constant value"
    assert saturated == "100% of the values are saturated (0.99 or more from 0)"
    assert constant == "the value is nearly the same in all positions: its standard deviation is 0"
    assert vanished == "the gradient of the value head has vanished: its norm is 0"


@pytest.mark.parametrize("value_loss", [0.271, 0.2699], ids=["above the best constant", "below it by noise"])
def test_a_constant_value_head_is_dead_without_saturation(value_loss):
    constant = HEALTHY._replace(value_loss=value_loss, value_deviation=0.0001)
    assert judged(*[constant] * 8).verdict == "dead"


def test_right_values_are_saturated_if_one_colour_always_wins():
    """A real training of 400 steps on games that Black wins: its later gradients are nearly 0."""
    right = HEALTHY._replace(
        value_loss=1e-7, constant_value_loss=1.0, saturated_values=1.0, value_deviation=1.0, value_gradient_norm=2e-3
    )
    assert judged(HEALTHY._replace(value_gradient_norm=0.4), *[right] * 7).verdict == "healthy"


def test_nearly_equal_values_are_right_if_nearly_all_games_are_draws():
    """Gomoku 3x3 after five generations: no better than the best constant, and living."""
    drawn = HEALTHY._replace(value_loss=0.0036, constant_value_loss=0.0035, value_deviation=0.0098)
    health = judged(*[drawn] * 8)
    assert (health.verdict, len(health.findings)) == ("warning", 1)


def test_the_last_lines_decide():
    assert judged(*[DEAD] * 6, *[HEALTHY] * 2).verdict == "healthy"
    assert judged(*[HEALTHY] * 6, *[DEAD] * 2).verdict == "dead"
    assert judged(*[HEALTHY] * 23, DEAD).verdict == "dead"


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"value_loss": 0.3}, "the value loss 0.3 does not beat 0.27, the loss of the best constant value"),
        ({"saturated_values": 0.95, "value_loss": 0.2}, "95% of the values are saturated (0.99 or more from 0)"),
        ({"policy_entropy": 0.001}, "the policy has collapsed: its entropy is 0.001 nats"),
        ({"policy_gradient_norm": 1e-9}, "the gradient of the policy head has vanished: its norm is 1e-09"),
        ({"value_gradient_norm": 1e-9}, "the gradient of the value head has vanished: its norm is 1e-09"),
    ],
)
def test_one_problem_alone_is_a_warning(changes: dict[str, Any], finding):
    health = judged(*[HEALTHY._replace(**changes)] * 8)
    assert (health.verdict, health.findings) == ("warning", (finding,))


def test_an_exploded_gradient_is_a_warning_that_names_the_step():
    exploded = HEALTHY._replace(policy_gradient_norm=280.0)
    health = judged(HEALTHY, exploded, *[HEALTHY] * 6)
    assert health.verdict == "warning"
    assert "the gradient of the policy head exploded at step 40" in health.findings[0]


def test_targets_of_one_class_are_not_judged():
    health = judged(*[HEALTHY._replace(constant_value_loss=0.0, value_loss=0.001, value_deviation=0.0)] * 8)
    assert health.verdict == "unknown"
    assert health.explained_variance is None
    assert health.findings == ("the health of the value is not known: all value targets of the window are equal",)
    assert health.lines() == []


def test_a_collapsed_policy_is_reported_although_the_value_is_not_judged():
    collapsed = HEALTHY._replace(constant_value_loss=0.0, value_loss=0.001, policy_entropy=1e-5)
    health = judged(*[collapsed] * 8)
    assert health.verdict == "unknown"
    assert health.lines() == ["the policy has collapsed: its entropy is 1e-05 nats"]
    assert health.sentence() == "the health of the value is not known: all value targets of the window are equal"


def test_a_training_of_few_steps_is_not_judged():
    health = judged(DEAD, num_steps=12)
    assert health.verdict == "unknown"
    assert health.findings == ("the health is not known: 12 steps are too few to judge, 100 are needed",)


def test_a_curve_of_one_line_is_judged():
    assert judged(HEALTHY, num_steps=100).verdict == "healthy"


def test_only_problems_are_warnings():
    assert judged(*[HEALTHY] * 8).lines() == []
    assert judged(DEAD, num_steps=12).lines() == []
    *findings, consequence = judged(*[DEAD] * 8).lines()
    assert len(findings) == 4
    assert consequence.startswith("the training is dead: the next generation restarts from the checkpoint that")
    assert "zero rollback" in consequence


def test_the_health_is_read_from_the_metrics():
    health = judged(*[DEAD] * 8)
    metrics = canonical_json({"step": 3, "health": health.model_dump(mode="json")})
    assert recorded_health(metrics, "metrics") == health


def test_metrics_of_other_code_have_no_health():
    assert recorded_health(b'{"step": 3}', "metrics") is None
    assert recorded_health(b'{"health": {"verdict": "tired"}}', "metrics") is None


@pytest.mark.parametrize("data", [b"{", b"[]", b"[" * 100_000], ids=["cut", "a list", "deep"])
def test_corrupt_metrics_are_reported(data):
    with pytest.raises(StorageError, match=r"gen-0001:metrics/training\.json is corrupt"):
        recorded_health(data, "go9/gen-0001:metrics/training.json")

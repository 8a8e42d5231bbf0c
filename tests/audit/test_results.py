"""Conclusions from compared outputs and two profiles."""

import pytest

from zero.audit.results import ComparedOutput, Reproduction, StageResult


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

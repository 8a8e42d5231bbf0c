"""Comparisons of networks: equal test games, a folder for each comparison. `tests/end_to_end` has the command."""

from pathlib import Path

import pytest

from tests.parameters import smoke_text
from zero.config.params import parse_params
from zero.errors import LineageError, ParamsError
from zero.evaluation.comparison import (
    ComparedNetwork,
    Comparison,
    Newest,
    _check_test_games,
    compare,
    training_steps,
    write_comparison,
)
from zero.evaluation.held_out import Evaluation, Metrics
from zero.evaluation.tournament import play_tournament
from zero.record.generation import Generation
from zero.storage.manifests import Checkpoint

METRICS = Metrics(num_positions=9, policy_accuracy=0.5, cross_entropy=1.0, value_error=0.5, entropy=1.0)


def newest(digest: str) -> Newest:
    """A lineage with a result for the test games of this digest; no result without a digest."""
    generation = object.__new__(Generation)
    if not digest:
        return Newest(generation, 0, None)
    found = Evaluation(network="champion", weights="a" * 64, games="test", games_digest=digest * 64, metrics=METRICS)
    return Newest(generation, 0, found)


def test_networks_with_different_test_games_are_not_compared() -> None:
    _check_test_games({"one": newest("b"), "other": newest("b"), "without": newest("")})
    with pytest.raises(ParamsError, match="one and other have different test games; name one dataset for all"):
        _check_test_games({"one": newest("b"), "other": newest("c"), "without": newest("")})


def test_the_steps_of_a_dead_training_count() -> None:
    params = parse_params(smoke_text())
    alive, dead = (Checkpoint.model_construct(step=40, restarts=restarts) for restarts in (False, True))
    assert training_steps(None, params) == 0
    assert training_steps(alive, params) == 40
    assert training_steps(dead, params) == 40 + params.training.num_steps, "its step is that of the next beginning"


@pytest.mark.parametrize("names", [["one"], ["one", "one"], ["one", "other", "one"]])
def test_a_comparison_needs_two_lineages(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(LineageError, match=f"needs two lineages or more, each once, got {' '.join(names)}$"):
        compare(tmp_path, names, 2)


def test_comparisons_that_differ_only_in_their_games_have_two_folders(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(smoke_text())
    network = parse_params(smoke_text()).network
    folders = []
    for num_games in (2, 4, 4):
        played = play_tournament(tmp_path, ("random", "rollout:1"), num_games)
        networks = tuple(
            ComparedNetwork(
                lineage=f"lineage-{number}",
                generation=1,
                network=network,
                num_weights=1,
                num_steps=1,
                standing=row,
                # The bounds of Wilson's interval are on the wrong side of these by rounding.
                test=METRICS.model_copy(update={"num_positions": 25, "policy_accuracy": float(number)}),
            )
            for number, row in enumerate(sorted(played.standings, key=lambda row: row.key))
        )
        folders.append(write_comparison(tmp_path, Comparison(networks=networks, tournament=played)))
    assert folders[0] != folders[1] == folders[2]
    assert (folders[0] / "comparison.png").exists() and (folders[1] / "comparison.png").exists()

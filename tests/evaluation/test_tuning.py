"""Tuning: the values of the trials, the response curve, continuation, bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.end_to_end.project import edit_params
from zero.cli.app import app
from zero.config.params import parse_params, preset_text
from zero.errors import ParamsError, WorkerError
from zero.evaluation import tuning as module
from zero.evaluation.match import run_match
from zero.evaluation.tuning import (
    FIRST_TRIALS,
    Trial,
    Tuning,
    TuningSpec,
    next_value,
    place_of,
    response_lines,
    response_of,
    response_png,
    tune,
)
from zero.network.weights import new_network, weights_bytes

PLAYER = "weights.safetensors,simulations=4"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a weight file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    params = parse_params(preset_text("smoke"))
    (tmp_path / "weights.safetensors").write_bytes(weights_bytes(new_network(params.network, params.game, 1)))
    return tmp_path


def empty(is_logarithmic: bool = False) -> Tuning:
    spec = TuningSpec(
        player="go9",
        weights="a" * 64,
        settings="b" * 64,
        parameter="c_puct",
        low=0.5,
        high=8.0,
        is_logarithmic=is_logarithmic,
        games_per_trial=400,
        opening_moves=4,
        seed=1,
    )
    return Tuning(spec=spec, trials=())


def with_trial(tuning: Tuning, value: float, score: float) -> Tuning:
    trial = Trial(value=value, score=score, unique_games=tuning.spec.games_per_trial, folder="f")
    return tuning.model_copy(update={"trials": (*tuning.trials, trial)})


def tuned(score: object, num_trials: int = 16) -> Tuning:
    """A tuning whose matches have the scores of a function of the position in the range."""
    tuning = empty(is_logarithmic=True)
    for _ in range(num_trials):
        value = next_value(tuning)
        tuning = with_trial(tuning, value, score(place_of(tuning.spec, value)))  # type: ignore[operator]
    return tuning


@pytest.mark.parametrize(
    ("is_logarithmic", "expected"), [(False, [0.5, 2.375, 4.25, 6.125, 8.0]), (True, [0.5, 1.0, 2.0, 4.0, 8.0])]
)
def test_the_first_values_are_at_equal_distances(is_logarithmic: bool, expected: list[float]) -> None:
    tuning, found = empty(is_logarithmic), []
    for _ in range(FIRST_TRIALS):
        found.append(next_value(tuning))
        tuning = with_trial(tuning, found[-1], 0.5)
    assert found == expected


def test_the_search_goes_to_the_best_values() -> None:
    tuning = tuned(lambda place: 0.6 - (place - 0.7) ** 2)
    places = [place_of(tuning.spec, trial.value) for trial in tuning.trials]
    assert all(0.0 <= place <= 1.0 for place in places)
    assert sum(abs(place - 0.7) < 0.15 for place in places[FIRST_TRIALS:]) >= 7
    response = response_of(tuning, default=1.5)
    assert abs(place_of(tuning.spec, response.best.value) - 0.7) < 0.1 and 0.56 < response.best.score < 0.64
    assert response.best.low > 0.5
    assert "this is better than 1.5" in response_lines(tuning, response)[-1]
    assert response_png(tuning, response).startswith(b"\x89PNG")


def test_a_best_value_at_the_end_of_the_range_is_called_so() -> None:
    tuning = tuned(lambda place: 0.65 - 0.3 * place)
    lines = response_lines(tuning, response_of(tuning, default=1.5))
    assert lines[-1] == "0.5 is an end of the range; values beyond it may score higher"


def test_a_flat_response_changes_nothing() -> None:
    tuning = tuned(lambda place: 0.5 + 0.01 * (-1) ** int(20 * place))
    response = response_of(tuning, default=1.5)
    assert response.at_default.low < 0.5 < response.at_default.high
    assert response_lines(tuning, response)[-1] == "no value is shown to be better than 1.5"


def test_a_value_depends_on_the_trials_alone() -> None:
    tuning = tuned(lambda place: 0.5 + 0.1 * place, num_trials=7)
    assert next_value(tuning) == next_value(Tuning.model_validate_json(tuning.model_dump_json()))


def test_an_interrupted_tuning_continues_with_the_same_values(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[float] = []

    def dying(*arguments: object, **options: object) -> object:
        played.append(1.0)
        if len(played) == 4:
            raise WorkerError("killed")
        return run_match(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "run_match", dying)
    with pytest.raises(WorkerError):
        tune(home, PLAYER, "c_puct", 0.5, 8.0, 12, games_per_trial=2)
    interrupted, response, folder = tune(home, PLAYER, "c_puct", 0.5, 8.0, 12, games_per_trial=2)
    assert len(played) == 7, "six trials, one of them twice"
    other = home / "other"
    other.mkdir()
    for name in ("params.yaml", "weights.safetensors"):
        (other / name).write_bytes((home / name).read_bytes())
    monkeypatch.chdir(other)
    whole, again, _ = tune(other, PLAYER, "c_puct", 0.5, 8.0, 12, games_per_trial=2)
    assert (whole, again) == (interrupted, response)
    assert {path.name for path in folder.iterdir()} == {"tuning.json", "curve.json", "curve.png"}
    more, _, _ = tune(home, PLAYER, "c_puct", 0.5, 8.0, 14, games_per_trial=2)
    assert more.trials[:6] == interrupted.trials and len(more.trials) == 7


def test_a_promotion_does_not_change_the_player(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = parse_params(preset_text("smoke"))

    def promoting(*arguments: object, **options: object) -> object:
        played = run_match(*arguments, **options)  # type: ignore[arg-type]
        path.write_bytes(weights_bytes(new_network(params.network, params.game, 2)))
        weights.update(str(player.settings["weights"]) for player in played.spec.players)
        return played

    path, weights = home / "weights.safetensors", set[str]()
    monkeypatch.setattr(module, "run_match", promoting)
    tuning, _, _ = tune(home, PLAYER, "c_puct", 0.5, 8.0, 10, games_per_trial=2)
    assert weights == {tuning.spec.weights}


@pytest.mark.parametrize("changed", [{"search__first_play": "zero"}, {"game__komi": 3.5}])
def test_other_parameters_begin_another_tuning(home: Path, changed: dict[str, Any]) -> None:
    _, _, folder = tune(home, PLAYER, "c_puct", 0.5, 8.0, 10, games_per_trial=2)
    (home / "params.yaml").write_text(edit_params(preset_text("smoke"), **changed))
    _, _, other = tune(home, PLAYER, "c_puct", 0.5, 8.0, 10, games_per_trial=2)
    assert other != folder


@pytest.mark.parametrize(
    ("player", "parameter", "bounds", "games", "message"),
    [
        (
            PLAYER,
            "simulations",
            (1.0, 2.0),
            (20, 2),
            "'simulations' cannot be tuned; choose one of c_puct, value_scale",
        ),
        (PLAYER, "c_puct", (2.0, 1.0), (20, 2), "the range 2 to 1 is empty, reversed or not positive"),
        (PLAYER, "c_puct", (2.0, 2.0), (20, 2), "the range 2 to 2 is empty"),
        (PLAYER, "c_puct", (0.0, 2.0), (20, 2), "not positive"),
        (PLAYER, "c_puct", (2.0, 4.0), (20, 2), "the player's own c_puct, 1.5, is outside of 2 to 4"),
        (PLAYER, "c_puct", (1.0, 4.0), (20, 3), "a trial needs an even number"),
        (PLAYER, "c_puct", (1.0, 4.0), (8, 2), "a tuning at least 5 trials"),
        (PLAYER, "c_puct", (1.0, 1e9), (20, 2), "c_puct '1e\\+09': Input should be less than or equal to"),
        (PLAYER, "value_scale", (0.1, 4.0), (20, 2), "a puct root does not use value_scale; add root=gumbel"),
        ("random", "c_puct", (1.0, 4.0), (20, 2), "'random' does not search with a network"),
        ("raw:weights.safetensors", "c_puct", (1.0, 4.0), (20, 2), "does not search with a network"),
    ],
)
def test_bad_input(
    home: Path, player: str, parameter: str, bounds: tuple[float, float], games: tuple[int, int], message: str
) -> None:
    with pytest.raises(ParamsError, match=message):
        tune(home, player, parameter, *bounds, *games)


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_the_sampler_would_refuse_is_an_error_before_the_first_game(home: Path, seed: int) -> None:
    with pytest.raises(ParamsError, match=f"seed = {seed}: give a whole number from 0 to 2147483647"):
        tune(home, PLAYER, "c_puct", 1.0, 4.0, 10, 2, seed=seed)


def test_the_command(home: Path) -> None:
    environment = {"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": ""}
    words = ["tune", PLAYER, "c_puct", "0.5", "8", "--log", "--games", "10", "--per-trial", "2"]
    done = CliRunner().invoke(app, words, env=environment)
    assert done.exit_code == 0, done.output
    assert "5 trials with" in done.stdout and "trials, curve and picture: " in done.stdout
    found = json.loads(CliRunner().invoke(app, [*words, "--json"], env=environment).stdout.splitlines()[-1])
    assert [trial["value"] for trial in found["tuning"]["trials"]] == [0.5, 1.0, 2.0, 4.0, 8.0]

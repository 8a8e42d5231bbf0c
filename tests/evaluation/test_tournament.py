"""A round robin: all pairs, ratings, continuation, players that fail."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from zero.cli.app import app
from zero.config.params import parse_params, preset_text
from zero.errors import ParamsError, WorkerError, ZeroError
from zero.evaluation import tournament as module
from zero.evaluation.ladder import ANCHORS
from zero.evaluation.match import finished_matches, run_match
from zero.evaluation.tournament import (
    Tournament,
    play_tournament,
    tournament_lines,
    tournament_tables,
    write_tournament,
)
from zero.network.weights import new_network, weights_bytes
from zero.players.build import ResolvedPlayer, resolve_player
from zero.players.spec import parse_player
from zero.storage.files import canonical_json

PLAYERS = ("rollout:60", "rollout:12", "random")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project folder with parameters."""
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    return tmp_path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Tournament:
    """A tournament with 20 games a match."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "params.yaml").write_text(preset_text("smoke"))
    return play_tournament(folder, PLAYERS, 20, opening_moves=2)


def shown(table: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_every_player_meets_every_other_one(played: Tournament) -> None:
    assert [row.text for row in played.standings] == [*PLAYERS]
    assert len(played.pairings) == 3 and all(row.games == 40 for row in played.standings)
    assert sum(row.points for row in played.standings) == 60
    by_text = {row.text: row for row in played.standings}
    # Rollouts are an anchor of the ladders, and the better one is preferred.
    reference = by_text["rollout:60"]
    assert played.reference == reference.name and reference.elo == reference.low == ANCHORS["rollout"]
    assert by_text["random"].low < by_text["random"].elo < by_text["random"].high < reference.elo


def test_the_table_has_the_scores_of_the_matches(played: Tournament) -> None:
    ratings, cells = (
        [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown(table).splitlines() if "│" in line]
        for table in tournament_tables(played)
    )
    for i, one in enumerate(played.standings):
        assert ratings[i][:3] == [str(i + 1), one.name, f"{one.elo:.0f}"]
        assert ratings[i][4] == f"{one.points / one.games:.1%}"
        assert cells[i][0] == str(i + 1) and cells[i][1 + i] == "·"
        for j in range(i + 1, 3):
            pairing = next(each for each in played.pairings if {*each.players} == {one.key, played.standings[j].key})
            won = pairing.wins if pairing.players[0] == one.key else pairing.losses
            assert cells[i][1 + j] == f"{(won + pairing.draws / 2) / 20:.0%}"


def test_how_well_the_ratings_fit_is_said(played: Tournament) -> None:
    (fit,) = played.fits
    assert fit is not None and {*fit.pair} < {row.name for row in played.standings}
    assert tournament_lines(played)[0].startswith("fit: 3 pairs for 2 ratings; results differ from the model ")
    assert Tournament.model_validate_json(canonical_json(played)) == played
    older = Tournament.model_validate_json(canonical_json(played.model_dump(mode="json", exclude={"fits"})))
    assert not any("fit" in line for line in tournament_lines(older))


def test_names_may_have_brackets(played: Tournament) -> None:
    rows = [row.model_copy(update={"name": f"raw:net[{number}] [/b]"}) for number, row in enumerate(played.standings)]
    ratings, _ = tournament_tables(played.model_copy(update={"standings": tuple(rows)}))
    assert all(row.name in shown(ratings) for row in rows)


def test_an_anchor_that_is_named_last_keeps_its_rating(home: Path) -> None:
    found = play_tournament(home, ("random", "rollout:12"), 4)
    by_text = {row.text: row for row in found.standings}
    assert by_text["rollout:12"].elo == by_text["rollout:12"].low == ANCHORS["rollout"]
    assert by_text["random"].low < by_text["random"].elo < by_text["random"].high


def test_players_without_a_network_play_the_game_of_the_others(home: Path) -> None:
    found = play_tournament(home, ["shipped:gomoku8,simulations=1", "rollout:2", "random"], 2)
    assert found.game.name == "gomoku" and len(found.pairings) == 3
    assert {match.spec.game for match in finished_matches(home)} == {found.game}


def test_a_promotion_does_not_change_the_players(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = parse_params(preset_text("smoke"))

    def promoting(*arguments: object, **options: object) -> object:
        played = run_match(*arguments, **options)  # type: ignore[arg-type]
        path.write_bytes(weights_bytes(new_network(params.network, params.game, 2)))
        return played

    path = home / "weights.safetensors"
    path.write_bytes(weights_bytes(new_network(params.network, params.game, 1)))
    monkeypatch.setattr(module, "run_match", promoting)
    network = f"{path},simulations=2"
    found = play_tournament(home, (network, "rollout:2", "random"), 2)
    (key,) = {row.key for row in found.standings if row.text == network}
    assert sum(key in pairing.players for pairing in found.pairings) == 2


def test_matches_that_exist_are_not_played_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = play_tournament(home, PLAYERS[1:], 4)
    made: list[int] = []
    with_another = play_tournament(home, PLAYERS, 4, progress=lambda done, total: made.append(done))
    assert {pairing.folder for pairing in first.pairings} <= {pairing.folder for pairing in with_another.pairings}
    assert max(made) == 8, "the third match was played before, so nothing is reported of it"
    assert write_tournament(home, with_another) == write_tournament(home, play_tournament(home, PLAYERS, 4))


def test_a_match_that_fails_is_listed_and_the_others_are_played(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(home: Path, players: tuple[ResolvedPlayer, ...], *others: object, **options: object) -> object:
        if [player.spec.text for player in players] == ["rollout:60", "random"]:
            raise WorkerError("the engine has died")
        return run_match(home, players, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "run_match", failing)
    found = play_tournament(home, PLAYERS, 4)
    assert len(found.pairings) == 2
    assert "not played: " in tournament_lines(found)[0] and "the engine has died" in tournament_lines(found)[0]
    dying = tuple(resolve_player(home, parse_player(text)) for text in ("rollout:60", "random"))
    monkeypatch.setattr(module, "run_match", lambda *others, **options: failing(home, dying))
    with pytest.raises(ZeroError, match="no match could be played; the first error: the engine has died"):
        play_tournament(home, PLAYERS, 4)


def test_repeated_games_are_said(home: Path) -> None:
    found = play_tournament(home, PLAYERS[1:], 4)
    few = found.model_copy(update={"pairings": (found.pairings[0].model_copy(update={"unique_games": 1}),)})
    assert tournament_lines(few) == ["3 of 4 games repeat another one; raise --openings above 0 for different games"]
    later = few.model_copy(update={"opening_moves": 4})
    assert tournament_lines(later) == ["3 of 4 games repeat another one; raise --openings above 4 for different games"]


def test_groups_without_games_between_them_are_said(home: Path) -> None:
    found = play_tournament(home, PLAYERS[1:], 4)
    (pairing,) = found.pairings
    apart = pairing.model_copy(update={"players": ("c" * 64, "d" * 64), "unique_games": 4})
    one = pairing.model_copy(update={"unique_games": 4})
    lines = tournament_lines(found.model_copy(update={"pairings": (one, apart)}))
    assert lines == ["2 groups of players have no games between them; their ratings cannot be compared"]


@pytest.mark.parametrize(
    ("players", "message"),
    [
        (["random"], "a tournament needs two players or more, got 1"),
        (["random", "rollout:12", "random"], "'random' and 'random' are the same player"),
        (["random", "rollouts:2"], "rollouts"),
    ],
)
def test_bad_players(home: Path, players: list[str], message: str) -> None:
    with pytest.raises(ZeroError, match=message):
        play_tournament(home, players, 4)


def test_an_odd_number_of_games(home: Path) -> None:
    with pytest.raises(ParamsError, match="games = 3 is odd"):
        play_tournament(home, PLAYERS, 3)


def test_the_command(home: Path) -> None:
    environment = {"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": "", "COLUMNS": "200"}
    words = ["tournament", *PLAYERS, "--games", "4", "--openings", "2"]
    done = CliRunner().invoke(app, words, env=environment)
    assert done.exit_code == 0, done.output
    folder = Path(done.stdout.splitlines()[-1].removeprefix("result: "))
    assert json.loads((folder / "tournament.json").read_text())["opening_moves"] == 2
    found = CliRunner().invoke(app, [*words, "--json"], env=environment)
    assert json.loads(found.stdout)["games_per_match"] == 4

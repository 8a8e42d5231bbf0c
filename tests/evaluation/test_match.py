"""A match: it can be interrupted, is counted by colour, and rejects corrupt files; `zero match` with real players."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.evaluation.scripted import Scripted, passes, plays
from tests.oracle.gnugo import needs_gnugo
from zero.cli.app import app
from zero.config.params import GoParams, parse_params, preset_text
from zero.data.sgf import read_collection
from zero.errors import ParamsError, StorageError
from zero.evaluation.match import MatchSpec, count_match, match_lines, play_match, read_match, run_match, track_matches
from zero.evaluation.referee import MatchGame
from zero.games.rules import go_rules
from zero.network.weights import new_network, weights_bytes
from zero.players.build import make_player
from zero.players.player import PlayerId, Reply
from zero.statistics import wilson_interval

GO3 = go_rules(3, 3, 0.5)
PASS = 9


class KilledError(Exception):
    pass


def player_id(name):
    return PlayerId(name=name, kind="random", settings={})


def spec_of(num_games=6, **changes) -> MatchSpec:
    return MatchSpec(
        game=GoParams(name="go", size=3, komi=0.5, allow_suicide=False),
        players=(player_id("centre"), player_id("pass")),
        num_games=num_games,
        opening_moves=0,
        seed=1,
    ).model_copy(update=changes)


MAKERS = (lambda: Scripted("centre", plays(4, PASS)), lambda: Scripted("pass", passes(GO3)))
"""The first player plays in the centre and then passes, the second one passes."""


def test_a_match_is_counted_by_colour_and_written_as_sgf(tmp_path):
    table = play_match(tmp_path / "m", spec_of(), MAKERS, 4)
    assert (table.result.wins, table.result.losses, table.result.draws) == (6, 0, 0)
    assert table.result.as_black.wins == table.result.as_white.wins == 3
    assert table.result.interval == wilson_interval(1.0, table.result.unique_games)
    assert (table.result.unique_games, table.forfeits) == (2, (0, 0))
    assert table.mean_margin == pytest.approx((8.5 + 9.5) / 2)
    games = read_collection((tmp_path / "m/games.sgf").read_text())
    assert [(game.black_name, game.result) for game in games] == [("centre", "B+8.5"), ("pass", "W+9.5")] * 3
    assert games[1].actions == (PASS, 4, PASS, PASS)


def test_an_interrupted_match_is_continued(tmp_path):
    def killed(done, total):
        if done == 3:
            raise KilledError

    with pytest.raises(KilledError):
        play_match(tmp_path / "m", spec_of(), MAKERS, 2, killed)
    assert not (tmp_path / "m/result.json").exists()
    seen, made = [], [make() for make in MAKERS]
    makers = [lambda: made[0], lambda: made[1]]
    table = play_match(tmp_path / "m", spec_of(), makers, 2, lambda done, total: seen.append((done, total)))
    assert seen == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert sorted(made[0].moves) == [3, 4, 5], "finished games are not played again"
    assert all(player.is_closed for player in made)
    assert table == play_match(tmp_path / "whole", spec_of(), MAKERS, 2)


def test_a_finished_match_needs_no_players(tmp_path):
    first = play_match(tmp_path / "m", spec_of(), MAKERS, 4)
    assert play_match(tmp_path / "m", spec_of(), (), 4) == first


def fail(*_):
    raise KilledError


@pytest.mark.parametrize("second", [fail, lambda: Scripted("fails", fail)], ids=["when made", "at a move"])
def test_players_are_closed_when_a_match_fails(tmp_path, second):
    first = MAKERS[0]()
    with pytest.raises(KilledError):
        play_match(tmp_path / "m", spec_of(), (lambda: first, second), 4)
    assert first.is_closed


def test_a_match_is_played_by_one_process(tmp_path):
    rejected = []

    def again(done, total):
        with pytest.raises(StorageError, match=r"the match in .*/m is being played by another process; wait for it"):
            play_match(tmp_path / "m", spec_of(), MAKERS, 4)
        rejected.append(done)

    play_match(tmp_path / "m", spec_of(2), MAKERS, 4, again)
    assert rejected == [0, 1, 2]


def test_a_folder_of_another_match_is_rejected(tmp_path):
    play_match(tmp_path / "m", spec_of(), MAKERS, 4)
    with pytest.raises(StorageError, match="contains another match; give another folder"):
        play_match(tmp_path / "m", spec_of(seed=2), MAKERS, 4)
    (tmp_path / "m/match.json").unlink()
    with pytest.raises(StorageError, match=r"contains games of a match without match\.json; give another folder"):
        play_match(tmp_path / "m", spec_of(), MAKERS, 4)


@pytest.mark.parametrize("data", [b"{", None], ids=["cut", "another game"])
def test_a_corrupt_game_is_named(tmp_path, data):
    play_match(tmp_path / "m", spec_of(), MAKERS, 4)
    path = tmp_path / "m/games/0002.json"
    path.write_bytes(data if data is not None else (tmp_path / "m/games/0001.json").read_bytes())
    with pytest.raises(StorageError, match=r"0002\.json is not game 2 of this match; delete the file"):
        play_match(tmp_path / "m", spec_of(), MAKERS, 4)
    path.unlink()
    assert play_match(tmp_path / "m", spec_of(), MAKERS, 4).result.wins == 6


def test_every_field_of_a_match_is_in_its_key():
    keys = {spec_of().key(), spec_of(seed=2).key(), spec_of(8).key(), spec_of(opening_moves=2).key()}
    keys.add(spec_of(players=(player_id("pass"), player_id("centre"))).key())
    assert len(keys) == 5


def game(number, outcome, end="passes", margin=0.0):
    return MatchGame(game=number, actions=(number,), outcome=outcome, margin=margin, end=end)


def test_draws_are_half_a_win_and_colours_alternate():
    games = [game(0, 1), game(1, 1), game(2, 0), game(3, -1)]
    result = count_match(spec_of(4), games).result
    assert (result.wins, result.losses, result.draws, result.score) == (2, 1, 1, 0.625)
    assert (result.as_black.wins, result.as_black.draws) == (1, 1)
    assert (result.as_white.wins, result.as_white.losses) == (1, 1)


def test_forfeits_are_counted_by_player():
    games = [game(0, -1, "forfeit"), game(1, -1, "forfeit"), game(2, 1), game(3, -1, "forfeit")]
    assert count_match(spec_of(4), games).forfeits == (1, 2)


def test_only_games_played_out_have_a_margin():
    games = [game(0, 1, margin=5.5), game(1, 1, margin=2.5), game(2, 1, "resignation"), game(3, -1, "forfeit")]
    assert count_match(spec_of(4), games).mean_margin == pytest.approx(1.5)


def test_lines_for_the_console(tmp_path):
    makers = MAKERS[0], lambda: Scripted("pass", lambda game, _: Reply(fault="it died"))
    table = play_match(tmp_path, spec_of(2), makers, 2)
    assert list(match_lines(table, tmp_path)) == [
        "centre against pass: 2 games",
        "2 won, 0 lost, 0 drawn: 100.0% (95 % interval 34.2% to 100.0%)",
        "as Black 1-0-0, 100.0% (20.7% to 100.0%); as White 1-0-0, 100.0% (20.7% to 100.0%)",
        "2 unique games of 0 moves on average",
        "pass forfeited 2 games; the reasons are in games.sgf",
        f"games and result: {tmp_path}",
    ]
    assert json.loads((tmp_path / "games/0001.json").read_text())["fault"] == "pass: it died"
    assert "it died" in (tmp_path / "games.sgf").read_text()


def test_repeated_games_are_said_and_narrow_no_interval():
    repeated = [game(number, (1, -1)[number % 2]).model_copy(update={"actions": (0,)}) for number in range(8)]
    lines = list(match_lines(count_match(spec_of(8), repeated), Path("m")))
    assert lines[1:5] == [
        "8 won, 0 lost, 0 drawn: 100.0% (95 % interval 20.7% to 100.0%)",
        "as Black 4-0-0, 100.0% (20.7% to 100.0%); as White 4-0-0, 100.0% (20.7% to 100.0%)",
        "1 unique games of 1 moves on average",
        "7 games repeat another one, which the intervals ignore; raise --openings for different games",
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project folder with parameters."""
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    return tmp_path


def test_the_command_shows_the_result_and_writes_the_games(home, monkeypatch):
    monkeypatch.chdir(home)
    params = parse_params(preset_text("smoke"))
    (home / "weights.safetensors").write_bytes(weights_bytes(new_network(params.network, params.game, 1)))
    name = "weights.safetensors,simulations=4"
    arguments = ["match", name, "random", "--games", "10", "--openings", "2"]
    done = CliRunner().invoke(app, arguments, env={"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": ""})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "weights.safetensors, 4 simulations against random: 10 games"
    assert "95 % interval" in lines[1] and lines[2].startswith("as Black ")
    folder = Path(lines[-1].removeprefix("games and result: "))
    assert folder.parent == home / ".zero/matches"
    games = read_collection((folder / "games.sgf").read_text())
    assert [game.black_name for game in games[:2]] == ["weights.safetensors, 4 simulations", "random"]
    assert [game.actions[:2] for game in games[::2]] == [game.actions[:2] for game in games[1::2]]
    count = json.loads((folder / "result.json").read_text())["result"]
    assert count["wins"] + count["losses"] + count["draws"] == 10


def test_equal_matches_have_one_folder(home):
    first = run_match(home, ("random", "random"), 4)
    assert run_match(home, ("random", "random"), 4).folder == first.folder
    assert run_match(home, ("random", "random"), 4, seed=2).folder != first.folder
    assert run_match(home, ("random", "random"), 4, komi=1.5).folder != first.folder


@pytest.mark.parametrize("damaged", [b"", b"{}", "another pair of players"])
def test_a_damaged_result_is_counted_again_from_the_games(home, damaged):
    first = run_match(home, ("random", "random"), 4)
    path, content = first.folder / "result.json", (first.folder / "result.json").read_bytes()
    if isinstance(damaged, str):
        damaged = content.replace(b'"name": "random"', b'"name": "another"')
    path.write_bytes(damaged)
    with pytest.raises(StorageError, match="result"):
        read_match(first.folder)
    assert run_match(home, ("random", "random"), 4).table == first.table
    assert path.read_bytes() == content


def test_a_missing_collection_is_written_again(home):
    first = run_match(home, ("random", "random"), 4)
    path = first.folder / "games.sgf"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(StorageError, match=r"games\.sgf: No such file or directory; repeat the match"):
        track_matches([first.folder], "")
    assert run_match(home, ("random", "random"), 4).table == first.table
    assert path.read_bytes() == content


def test_every_player_that_is_made_is_closed(home, monkeypatch):
    made, closed = [], []

    def make(participant, rules, games_at_once, seed):
        if participant.spec.text == "rollout:1":
            raise ParamsError("broken")
        player = make_player(participant, rules, games_at_once, seed)
        monkeypatch.setattr(player, "close", lambda: closed.append(player))
        made.append(player)
        return player

    for module in ("zero.evaluation.match", "zero.players.build"):
        monkeypatch.setattr(f"{module}.make_player", make)
    run_match(home, ("random", "random"), 2)
    assert len(made) == len(closed) == 4, "a player without a network is made once more to report its name"
    run_match(home, ("random", "random"), 2)
    assert len(made) == len(closed) == 6, "the match is finished"
    with pytest.raises(ParamsError, match="broken"):
        run_match(home, ("random", "rollout:1"), 2)
    assert len(made) == len(closed) == 7


@needs_gnugo
def test_gnugo_beats_random_without_forfeits(home):
    table = run_match(home, ("gnugo:1", "random"), 8).table
    assert table.result.wins == 8
    assert table.forfeits == (0, 0)

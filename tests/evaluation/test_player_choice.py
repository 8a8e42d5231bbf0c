"""The player that is chosen if a lineage and a shipped player have the same name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import environment_of, make_project
from tests.parameters import resolved_preset
from tests.players.resolved import resolved_network
from zero.config.params import load_params
from zero.evaluation.match import MatchSpec
from zero.evaluation.player_choice import QUICK_GAMES, QUICK_OPENING_MOVES, QUICK_SEARCH, choose_player
from zero.evaluation.referee import MatchGame
from zero.interop.export import export_player
from zero.lineage.workspace import new_lineage
from zero.players import networks
from zero.players.networks import SHIPPED_DIR, resolve_network
from zero.storage.files import canonical_json, write_atomic

CHAMPION, SHIPPED = "tiny/gen-0002", "shipped:tiny"
QUICK_TEXTS = f"tiny/gen-0001,{QUICK_SEARCH}", f"{SHIPPED},{QUICK_SEARCH}"
"""The players of the quick match; the champion has the name of the generation that promoted it."""


@pytest.fixture
def read_only(recorded: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lineage `tiny` at generation 2; the network of its generation 0 is the shipped player `tiny`."""
    ship(recorded.home, "tiny/gen-0000", tmp_path, monkeypatch)
    return recorded.home


@pytest.fixture
def home(read_only: Path, tmp_path: Path) -> Path:
    """A copy of this project."""
    return Path(shutil.copytree(read_only, tmp_path / "home", symlinks=True))


def ship(home: Path, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this network the only shipped player, with the name `tiny`."""
    export_player(home, source, folder / "shipped/tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", folder / "shipped")


def choose(home: Path, text: str = "tiny") -> tuple[str, list[str]]:
    """The chosen spec and the lines for the user."""
    lines: list[str] = []
    return choose_player(home, text, "play", lines.append), lines


def matches(home: Path) -> list[Path]:
    return sorted((home / ".zero/matches").glob("*/games/*"))


def write_match(home: Path, wins: int, losses: int, draws: int = 0) -> None:
    """The games of a quick match with this result for the champion."""
    first, second = (resolved_network(home, text).id for text in QUICK_TEXTS)
    game, results = load_params(home / ".zero/workspaces/tiny").game, [1] * wins + [-1] * losses + [0] * draws
    moves = QUICK_OPENING_MOVES
    spec = MatchSpec(game=game, players=(first, second), num_games=QUICK_GAMES, opening_moves=moves, seed=1)
    folder = home / ".zero/matches" / spec.key()[:16]
    write_atomic(folder / "match.json", canonical_json(spec))
    for number, result in enumerate(results):
        fields = {"game": number, "actions": (number % 25,), "outcome": (1, -1)[number % 2] * result}
        written = MatchGame.model_validate(fields | {"margin": 0.0, "end": "passes"})
        write_atomic(folder / f"games/{number:04d}.json", canonical_json(written))


def test_two_trained_networks_play_a_quick_match_once(home, monkeypatch, capsys):
    monkeypatch.setenv("ZERO_PROGRESS", "json")
    chosen, lines = choose(home)
    out, err = capsys.readouterr()
    assert not out and '"done": 40, "total": 40' in err, "standard output is for GTP"
    before_match, result = lines
    assert before_match == (
        f"{CHAMPION} and {SHIPPED} play {QUICK_GAMES} quick games, only this time, to find the stronger player; to "
        f"skip them, run `zero play {CHAMPION}` or `zero play {SHIPPED}`."
    )
    other = {CHAMPION: SHIPPED, SHIPPED: CHAMPION}[chosen]
    assert result.startswith(f"{chosen} plays: it won ") and f" against {other} (32 simulations per move). " in result
    played = matches(home)
    assert len(played) == QUICK_GAMES
    assert choose(home) == (chosen, [result]), "the second time the result is known"
    assert matches(home) == played


@pytest.mark.parametrize(
    "wins, losses, draws, chosen, reason",
    [
        (21, 19, 0, CHAMPION, f"it won 21 of 40 games against {SHIPPED}"),
        (20, 20, 0, SHIPPED, f"it won 20 of 40 games against {CHAMPION}"),
        (5, 4, 31, CHAMPION, f"it won 5 of 40 games and drew 31 against {SHIPPED}"),
    ],
)
def test_the_shipped_player_plays_unless_the_champion_scored_more_than_half(home, wins, losses, draws, chosen, reason):
    write_match(home, wins, losses, draws)
    other, which = (SHIPPED, "shipped player") if chosen == CHAMPION else (CHAMPION, "champion")
    line = f"{chosen} plays: {reason} (32 simulations per move). To choose the {which}: `zero play {other}`."
    assert choose(home) == (chosen, [line])


def test_the_same_network_needs_no_games(read_only, recorded, tmp_path, monkeypatch):
    ship(recorded.home, "tiny/gen-0001", tmp_path / "same", monkeypatch)
    line = f"{CHAMPION} plays: {SHIPPED} is the same network. To choose the shipped player: `zero play {SHIPPED}`."
    assert choose(read_only) == (CHAMPION, [line]) and not matches(read_only)


def test_a_lineage_of_another_game_plays_itself(read_only, tmp_path, monkeypatch):
    shutil.copytree(SHIPPED_DIR / "go9", tmp_path / "other/tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path / "other")
    chosen, (line,) = choose(read_only)
    assert chosen == CHAMPION
    assert line.startswith(f"{CHAMPION} plays: {SHIPPED} plays another game (size 5 and 9, komi 0.5 and 7.0). ")


@pytest.mark.parametrize(
    "text, chosen",
    [("tiny,simulations=800,resign=-0.9", f"{SHIPPED},simulations=800,resign=-0.9"), ("raw:tiny", f"raw:{SHIPPED}")],
)
def test_the_options_go_to_the_chosen_player(home, text, chosen):
    write_match(home, 2, 38)
    found, (line,) = choose(home, text)
    assert found == chosen and line.endswith(f"`zero play {text.replace('tiny', CHAMPION)}`.")


@pytest.mark.parametrize("text", [CHAMPION, "tiny/gen-0000", SHIPPED, f"raw:{SHIPPED}", "random", "nobody"])
def test_a_name_with_one_meaning_is_not_changed(read_only, text):
    assert choose(read_only, text) == (text, [])


def test_in_matches_and_exports_the_name_means_the_champion(read_only):
    champion, shipped = (resolve_network(read_only, text) for text in ("tiny", SHIPPED))
    assert (champion.name, shipped.name) == (CHAMPION, SHIPPED)
    assert champion.weights == resolve_network(read_only, "tiny/gen-0001").weights
    assert shipped.weights == resolve_network(read_only, "tiny/gen-0000").weights
    assert resolved_network(read_only, f"raw:{SHIPPED}").id.name == f"{SHIPPED}, raw network"


def test_a_file_does_not_hide_a_shipped_player(read_only, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(SHIPPED).write_bytes(b"not a network")
    assert resolve_network(read_only, SHIPPED).weights == resolve_network(read_only, "tiny/gen-0000").weights


def test_without_the_champions_network_the_shipped_player_plays(home):
    shutil.rmtree(home / ".zero/dvc-cache")
    chosen, (line,) = choose(home)
    assert chosen == SHIPPED and line.startswith(f"warning: {SHIPPED} plays: the champion of {CHAMPION}, ")
    assert "is not on this machine; fetch it with `dvc pull`" in line


def test_without_a_usable_shipped_player_the_champion_plays(read_only, tmp_path):
    (tmp_path / "shipped/tiny/params.yaml").unlink()
    chosen, (line,) = choose(read_only)
    assert chosen == CHAMPION and line.startswith(f"warning: {CHAMPION} plays: cannot read ")


def test_if_the_quick_match_fails_the_champion_plays(home):
    (home / ".zero/matches").write_text("a file")
    chosen, (line,) = choose(home)
    assert chosen == CHAMPION
    assert line.startswith(f"warning: {CHAMPION} plays: the quick match failed: cannot write ")


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a lineage that has the name of a shipped player, at generation 0."""
    home = make_project(tmp_path_factory.mktemp("newcomer"))
    new_lineage(home, "go9", resolved_preset("go9-laptop"), "go9-laptop")
    return home


def zero_with_input(home: Path, typed: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "zero", *arguments],
        cwd=home,
        env=environment_of(),
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_newcomer_plays_against_the_shipped_player(newcomer):
    done = zero_with_input(newcomer, "E5\nquit\n", "play", "go9,simulations=8")
    assert done.stderr.splitlines() == [
        "shipped:go9 plays: go9/gen-0000 is still the random network of generation 0. "
        "To choose the champion: `zero play go9/gen-0000,simulations=8`."
    ]
    assert "shipped:go9, 8 simulations (White) plays" in done.stdout


def test_gtp_writes_the_choice_to_standard_error(newcomer):
    done = zero_with_input(newcomer, "boardsize 9\nquit\n", "gtp", "go9")
    assert done.stdout == "=\n\n=\n\n"
    assert done.stderr.startswith("shipped:go9 plays: ") and done.stderr.endswith("`zero gtp go9/gen-0000`.\n")

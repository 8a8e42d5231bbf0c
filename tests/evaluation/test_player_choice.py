"""The player that is chosen if a lineage and a shipped player have the same name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import environment_of, make_project
from tests.made_generations import made_entry
from tests.parameters import resolved_preset
from tests.players.resolved import resolved_network
from zero.config.params import load_params, params_text
from zero.evaluation import player_choice
from zero.evaluation.match import RESULT_FILE, SPEC_FILE, MatchSpec, count_match
from zero.evaluation.player_choice import champions, choose_player
from zero.evaluation.referee import MatchGame
from zero.interop.export import export_player
from zero.lineage.workspace import new_lineage
from zero.players import networks
from zero.players.networks import SHIPPED_DIR, resolve_network
from zero.players.spec import parse_player
from zero.record.ledger import read_ledger
from zero.storage.files import write_manifest
from zero.storage.manifests import LedgerEntry, Source

CHAMPION, SHIPPED = "tiny/gen-0002", "shipped:tiny"


@pytest.fixture(scope="module")
def exported(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network of generation 0 as the player `tiny`."""
    folder = tmp_path_factory.mktemp("shipped")
    export_player(recorded.home, "tiny/gen-0000", folder / "tiny")
    return folder


@pytest.fixture
def read_only(recorded: Lineage, exported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lineage `tiny` at generation 2; the network of its generation 0 is the shipped player `tiny`."""
    monkeypatch.setattr(networks, "SHIPPED_DIR", exported)
    return recorded.home


@pytest.fixture
def home(read_only: Path, tmp_path: Path) -> Path:
    """A copy of this project."""
    return Path(shutil.copytree(read_only, tmp_path / "home", symlinks=True))


def choose(home: Path, text: str = "tiny") -> tuple[str, list[str]]:
    """The chosen spec and the lines for the user."""
    lines: list[str] = []
    return choose_player(home, parse_player(text), "play", lines.append).text, lines


def write_match(home: Path, players: tuple[str, str], wins: int, losses: int, **changes: float) -> None:
    """A finished match with this result for the first player, and with changes of the game."""
    game = load_params(home / ".zero/workspaces/tiny").game.model_copy(update=changes)
    first, second = (resolved_network(home, text).id for text in players)
    spec = MatchSpec(game=game, players=(first, second), num_games=wins + losses, opening_moves=0, seed=1)
    outcomes = [(1, -1)[number % 2] * result for number, result in enumerate([1] * wins + [-1] * losses)]
    games = [
        MatchGame.model_validate(
            {"game": number, "actions": (number,), "outcome": outcome, "margin": 0.0, "end": "passes"}
        )
        for number, outcome in enumerate(outcomes)
    ]
    folder = home / ".zero/matches" / spec.key()[:16]
    write_manifest(folder, spec, SPEC_FILE)
    write_manifest(folder, count_match(spec, games), RESULT_FILE)


def test_without_a_match_the_higher_generation_plays(home):
    line = (
        f"{CHAMPION} plays: the champion is of generation 1, {SHIPPED} of generation 0; `zero match "
        f"{CHAMPION},simulations=400,pass_wins=true {SHIPPED},simulations=400,pass_wins=true` measures which one is "
        f"stronger. To choose the shipped player: `zero play {SHIPPED}`."
    )
    assert choose(home) == (CHAMPION, [line])


@pytest.mark.parametrize(
    ("players", "chosen", "reason"),
    [
        ((CHAMPION, SHIPPED), CHAMPION, f"it won 7 and lost 3 games against {SHIPPED} in the matches on this machine"),
        ((SHIPPED, CHAMPION), SHIPPED, f"it won 7 and lost 3 games against {CHAMPION} in the matches on this machine"),
    ],
)
def test_the_winner_of_recorded_matches_plays(home, players, chosen, reason):
    write_match(home, players, 7, 3)
    other, which = (SHIPPED, "shipped player") if chosen == CHAMPION else (CHAMPION, "champion")
    assert choose(home) == (chosen, [f"{chosen} plays: {reason}. To choose the {which}: `zero play {other}`."])


def test_a_game_of_two_matches_counts_once(home):
    write_match(home, (CHAMPION, SHIPPED), 6, 4)
    write_match(home, (CHAMPION, SHIPPED), 7, 3)
    write_match(home, (CHAMPION, SHIPPED), 7, 5)
    assert "it won 7 and lost 5 games" in choose(home)[1][0]


@pytest.mark.parametrize(
    "players",
    [
        (f"{SHIPPED},simulations=800", CHAMPION),
        (f"{SHIPPED},simulations=8,pass_wins=true", f"{CHAMPION},simulations=8"),
        (f"{SHIPPED},simulations=8,resign=-0.9", f"{CHAMPION},simulations=8"),
        (f"raw:{SHIPPED}", f"raw:{CHAMPION}"),
    ],
)
def test_matches_with_unequal_searches_or_without_one_do_not_count(home, players):
    write_match(home, players, 10, 0)
    assert choose(home)[0] == CHAMPION


def test_the_match_of_the_hint_counts(home):
    hint = choose(home)[1][0].split("`")[1]
    first, second = hint.split()[-2:]
    write_match(home, (first, second), 3, 7)
    assert choose(home)[0] == SHIPPED


@pytest.mark.parametrize(("wins", "reason"), [(7, "its predecessor tiny/gen-0000 won 7 and lost 3 games"), (3, "")])
def test_a_match_that_an_earlier_champion_won_counts(home, tmp_path, monkeypatch, wins, reason):
    params = load_params(home / ".zero/workspaces/tiny").model_copy(update={"seed": 99})
    new_lineage(home, "other", params_text(params), "other")
    export_player(home, "other/gen-0000", tmp_path / "tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path)
    write_match(home, ("tiny/gen-0000", SHIPPED), wins, 10 - wins)
    chosen, (line,) = choose(home)
    assert chosen == CHAMPION
    assert line.startswith(f"{CHAMPION} plays: {reason or 'the champion is of generation 1'}")
    write_match(home, (CHAMPION, SHIPPED), 5, 5)
    assert choose(home)[1] == [line], "a tie decides nothing"
    write_match(home, (CHAMPION, SHIPPED), 4, 8)
    assert choose(home)[0] == SHIPPED


def test_only_the_newest_earlier_champion_with_a_result_counts(home, monkeypatch):
    ledger = read_ledger(home / ".zero/workspaces/tiny")
    others = [ledger[0].model_copy(update={"champion": letter * 64}) for letter in "ef"]
    results = {"e" * 64: (3, 7), "f" * 64: (7, 3)}
    monkeypatch.setattr(player_choice, "_results_against", lambda home, weights, game: results)
    monkeypatch.setattr(player_choice, "champions", lambda ledger: [ledger[-1], *others])
    assert choose(home)[1][0].startswith(f"{CHAMPION} plays: the champion is of generation 1")
    results["e" * 64] = (5, 5)
    assert "its predecessor tiny/gen-0000 won 7 and lost 3 games" in choose(home)[1][0]


def test_a_match_of_two_root_rules_counts(home):
    write_match(home, (f"{SHIPPED},simulations=8,root=gumbel", f"{CHAMPION},simulations=8,root=puct"), 10, 0)
    assert choose(home)[0] == SHIPPED


def test_champions_are_those_that_the_current_one_descends_from():
    def entry(number: int, champion: str, source: int | None = None) -> LedgerEntry:
        kind = "decision" if source is None else "rollback"
        tag = Source(tag=f"go9/gen-{source:04d}", commit="c" * 40, line="1" * 64) if source is not None else None
        changes = {"generation": number, "kind": kind, "champion": champion, "source": tag}
        return made_entry(1).model_copy(update=changes)

    ledger = [entry(0, "a"), entry(1, "b"), entry(2, "b"), entry(3, "c"), entry(4, "d")]
    assert [(one.generation, one.champion) for one in champions(ledger)] == [(4, "d"), (3, "c"), (2, "b"), (0, "a")]
    ledger += [entry(5, "b", source=2), entry(6, "b"), entry(7, "e")]
    assert [(one.generation, one.champion) for one in champions(ledger)] == [(7, "e"), (6, "b"), (0, "a")]


def test_matches_with_another_komi_do_not_count(home):
    write_match(home, (SHIPPED, CHAMPION), 10, 0, komi=20.0)
    assert choose(home)[0] == CHAMPION


def test_matches_of_other_players_do_not_count(home):
    write_match(home, (SHIPPED, f"{CHAMPION},simulations=4"), 0, 2)
    write_match(home, (SHIPPED, "tiny/gen-0000"), 10, 0)
    assert choose(home)[0] == CHAMPION


def test_the_same_network(read_only, recorded, tmp_path, monkeypatch):
    export_player(recorded.home, "tiny/gen-0001", tmp_path / "tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path)
    line = f"{CHAMPION} plays: {SHIPPED} is the same network. To choose the shipped player: `zero play {SHIPPED}`."
    assert choose(read_only) == (CHAMPION, [line])


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
    write_match(home, (SHIPPED, CHAMPION), 2, 0)
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
    assert chosen == SHIPPED and line.startswith(f"{SHIPPED} plays: the champion of {CHAMPION}, ")
    assert "is not on this machine; fetch it with `dvc pull`" in line


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
        "shipped:go9 plays: the champion is of generation 0, shipped:go9 of generation 17; `zero match "
        "go9/gen-0000,simulations=400,pass_wins=true shipped:go9,simulations=400,pass_wins=true` measures which one is "
        "stronger. To choose the champion: `zero play go9/gen-0000,simulations=8`."
    ]
    assert "shipped:go9, 8 simulations (White) plays" in done.stdout


def test_gtp_writes_the_choice_to_standard_error(newcomer):
    done = zero_with_input(newcomer, "boardsize 9\nquit\n", "gtp", "go9")
    assert done.stdout == "=\n\n=\n\n"
    assert done.stderr.startswith("shipped:go9 plays: ") and done.stderr.endswith("`zero gtp go9/gen-0000`.\n")

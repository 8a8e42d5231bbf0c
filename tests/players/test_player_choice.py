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
from zero.interop.export import export_player
from zero.lineage.workspace import new_lineage
from zero.players import networks, player_choice
from zero.players.networks import SHIPPED_DIR, resolve_network
from zero.players.player_choice import choose_player
from zero.players.spec import parse_player

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


def choose(home: Path, text: str = "tiny") -> tuple[str, list[str]]:
    """The chosen spec and the lines for the user."""
    lines: list[str] = []
    return choose_player(home, parse_player(text), "play", lines.append).text, lines


def test_the_higher_generation_plays(read_only, monkeypatch):
    line = (
        f"{CHAMPION} plays: the champion is of generation 1, {SHIPPED} of generation 0. To choose the shipped player: "
        f"`zero play {SHIPPED}`."
    )
    assert choose(read_only) == (CHAMPION, [line])
    monkeypatch.setattr(player_choice, "shipped_generation", lambda name: 1)
    assert choose(read_only)[0] == SHIPPED, "of equal generations"


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
def test_the_options_go_to_the_chosen_player(read_only, monkeypatch, text, chosen):
    monkeypatch.setattr(player_choice, "shipped_generation", lambda name: 9)
    found, (line,) = choose(read_only, text)
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
        "shipped:go9 plays: the champion is of generation 0, shipped:go9 of generation 17. To choose the champion: "
        "`zero play go9/gen-0000,simulations=8`."
    ]
    assert "shipped:go9, 8 simulations (White) plays" in done.stdout


def test_gtp_writes_the_choice_to_standard_error(newcomer):
    done = zero_with_input(newcomer, "boardsize 9\nquit\n", "gtp", "go9")
    assert done.stdout == "=\n\n=\n\n"
    assert done.stderr.startswith("shipped:go9 plays: ") and done.stderr.endswith("`zero gtp go9/gen-0000`.\n")

"""Openings and corners up to symmetry, their shares over generations, and the command."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.end_to_end.lineages import Lineage
from tests.made_games import made_records
from zero.cli.app import app
from zero.config.params import GoParams
from zero.data.dataset.columns import columns_of
from zero.data.dataset.manifest import ImportedGame
from zero.data.records import GameColumns, read_records, write_records
from zero.errors import LineageError, ParamsError
from zero.evaluation.openings import (
    Openings,
    corners_of,
    lineage_openings,
    most_frequent,
    opening_moves,
    openings_png,
    openings_tables,
    stones_after,
)
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, othello_rules

RULES = go_rules(9, 9, 7.0)


def games_of(*texts: str) -> GameColumns:
    """Games by the names of their moves."""
    games = []
    for number, text in enumerate(texts):
        actions = [name_to_action(RULES, name) for name in text.split()]
        games.append(
            ImportedGame(
                digest="d" * 64,
                number=number,
                file="f",
                game=1,
                actions=actions,
                outcome=1,
                margin=0.0,
                end="resignation",
                black="",
                white="",
                black_rating="",
                white_rating="",
                result="B+R",
                komi=7.0,
                rules="",
                date="",
                place="",
            )
        )
    return columns_of(RULES, games, 0)


def named(moves: tuple[tuple[int, int], ...]) -> str:
    return most_frequent(RULES, "opening", [Counter([moves])], [1], 1)[0].names


def test_openings_are_equal_up_to_symmetry() -> None:
    games = games_of("C3 G7 G3", "G3 C7 C3", "G7 C3 C7", "C3 G7 E5", "C3 G7")
    counts = Counter(opening_moves(RULES, games, 3))
    assert sorted(counts.values()) == [1, 3], "the last game has too few moves"


def test_the_board_of_an_opening_has_the_discs_that_were_turned() -> None:
    rules = othello_rules(6, 6)
    opening = tuple((move, name_to_action(rules, name)) for move, name in enumerate(("C5", "B5")))
    rows = ("......", ".OX...", "..OX..", "..XO..", "......", "......")
    assert stones_after(rules, opening).tolist() == [{"X": 1, "O": -1, ".": 0}[each] for each in "".join(rows)]


def test_openings_are_the_smallest_image_of_the_first_moves() -> None:
    rules = go_rules(5, 5, 0.5)
    records = made_records(rules, 30, 9)
    slow = [
        tuple((move % 2, int(action)) for move, action in enumerate(min(map(tuple, images))))
        for images in (rules.symmetries[:, record.actions[:4]] for record in records)
    ]
    assert [*opening_moves(rules, read_records(write_records(records), "made"), 4)] == slow
    assert len(set(slow)) > 1


def test_moves_in_a_corner_are_seen_as_in_the_upper_left_one() -> None:
    # lower right: Black G3, White G2, Black F3; upper left: White C7, Black D7, White C6; E5 and pass are in no corner
    games = games_of("G3 C7 D7 G2 F3 C6 E5 pass")
    found = {named(moves) for moves in corners_of(RULES, games, 3)}
    assert found == {"BC7 WC8 BD7", "BC7 WD7 BC6"}, "White began in the second corner, and counts as Black there"


def test_a_corner_is_mirrored_to_its_smallest_image() -> None:
    one, other = games_of("C7 E5 D7 E4 C6"), games_of("G3 E5 G4 E4 F3")
    assert [*corners_of(RULES, one, 3)] == [*corners_of(RULES, other, 3)] != []


def test_a_corner_with_too_few_moves_does_not_count() -> None:
    assert [*corners_of(RULES, games_of("C7 G3 C6 G4"), 3)] == []


def test_the_most_frequent_have_the_highest_mean_share() -> None:
    a, b, c = (((0, action),) for action in (1, 2, 3))
    tables: list[Counter[tuple[tuple[int, int], ...]]] = [
        Counter({a: 3, b: 1}),
        Counter({b: 10, c: 10}),
        Counter({b: 1, c: 3}),
    ]
    found = most_frequent(RULES, "opening", tables, [1, 2, 4], 2)
    assert [each.moves for each in found] == [c, b], "1.25 and 1.0 of 3"
    of_c = next(each for each in found if each.moves == c)
    assert (of_c.shares, of_c.first, of_c.peak) == ((0.0, 0.5, 0.75), 2, 4)


def test_the_command_shows_the_openings_of_a_lineage(recorded: Lineage) -> None:
    environment = {"ZERO_HOME": str(recorded.home), "COLUMNS": "150"}
    done = CliRunner().invoke(app, ["openings", "tiny", "--moves", "2", "--top", "3"], env=environment)
    assert done.exit_code == 0, done.output
    folder = Path(done.stdout.splitlines()[-1].removeprefix("data and picture: "))
    assert {path.name for path in folder.iterdir()} == {"openings.json", "openings.png"}
    found = json.loads((folder / "openings.json").read_text())
    assert found["generations"] == [1, 2] and found["num_games"] == [24, 24]
    assert {each["kind"] for each in found["frequencies"]} == {"opening", "corner"}


def test_more_moves_than_any_game_has_are_an_error_in_one_line(lineage: Lineage) -> None:
    shutil.rmtree(lineage.home / ".zero/openings", ignore_errors=True)
    done = CliRunner().invoke(app, ["openings", "tiny", "--moves", "300"], env={"ZERO_HOME": str(lineage.home)})
    assert isinstance(done.exception, ParamsError)
    message = r"--moves must be at most \d+, the length of the longest game of tiny, got 300; give a smaller number"
    assert re.fullmatch(message, str(done.exception)) and not (lineage.home / ".zero/openings").exists()


def test_shares_are_of_all_games(recorded: Lineage) -> None:
    found = lineage_openings(recorded.home, "tiny", num_moves=1, top=100)
    openings = [each for each in found.frequencies if each.kind == "opening"]
    assert len(openings) <= 7, "a 5x5 board has six first moves up to symmetry, and the pass"
    for index in range(2):
        assert sum(each.shares[index] for each in openings) == pytest.approx(1.0)
    assert openings_png(found).startswith(b"\x89PNG")


def test_shares_of_corners_are_of_corners() -> None:
    kinds = ("opening", "corner")
    found = [most_frequent(RULES, kind, [Counter([((0, 20),)])], [1], 1)[0] for kind in kinds]
    openings = Openings(
        lineage="go9",
        game=GoParams(name="go", size=9, komi=7.0),
        num_moves=1,
        generations=(1,),
        num_games=(1,),
        frequencies=tuple(found),
    )
    assert [table.title for table in openings_tables(openings)] == [
        "openings of go9: share of the games with so many moves",
        "corners of go9: share of the corners with so many moves",
    ]


def test_bad_input(recorded: Lineage) -> None:
    with pytest.raises(ParamsError, match="0 moves and 3 sequences"):
        lineage_openings(recorded.home, "tiny", 0, 3)
    with pytest.raises(LineageError):
        lineage_openings(recorded.home, "unknown")

"""The ladder of a real lineage: players, results that count, console output, match scheduling."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.end_to_end.lineages import Lineage
from tests.evaluation.scripted import Scripted, passes, plays
from tests.players.resolved import resolved_network
from zero.cli.app import app
from zero.config.params import GameParams, Params, load_params
from zero.errors import ParamsError
from zero.evaluation import scheduling
from zero.evaluation.elo import Fit
from zero.evaluation.ladder import (
    ANCHORS,
    Ladder,
    LadderRow,
    OnScale,
    Result,
    champion_player,
    disambiguate,
    fit_lines,
    key_of,
    lineage_ladder,
    rate_lineage,
)
from zero.evaluation.ladder_output import ladder_lines, ladder_tables
from zero.evaluation.match import MatchSpec, play_match
from zero.evaluation.scheduling import free_seed, line_up, play_schedule
from zero.games.rules import rules_of
from zero.interop.export import export_player
from zero.players import networks
from zero.players.build import network_id
from zero.players.player import PlayerId, Reply
from zero.record.lineages import ProjectRecord
from zero.storage.files import canonical_json, write_atomic

GNUGO_10 = PlayerId(name="GNU Go 3.8 level 10", kind="gtp", settings={"engine": "GNU Go 3.8", "level": 10})
RANDOM = PlayerId(name="random", kind="random", settings={})
AGAINST = ("random", "rollout:50")


@pytest.fixture
def home(recorded: Lineage, tmp_path: Path) -> Path:
    """A copy of its project; the tests write neither to git nor through DVC."""
    return Path(shutil.copytree(recorded.home, tmp_path / "home", symlinks=True))


@pytest.fixture
def params(recorded: Lineage) -> Params:
    return load_params(recorded.workspace)


def champion_id(home: Path, number: int, simulations: int | None = None) -> PlayerId:
    with ProjectRecord(home) as record:
        player = champion_player(record.generations("tiny")[number], simulations)
    assert player is not None
    return player


def write_match(
    home: Path,
    game: GameParams,
    players: tuple[PlayerId, PlayerId],
    won: bool = True,
    num_games: int = 10,
    seed: int = 1,
) -> Path:
    """A finished match in which the first player wins or loses all games, each with another move."""
    spec = MatchSpec(game=game, players=players, num_games=num_games, opening_moves=0, seed=seed)
    rules = rules_of(game)
    folder = home / ".zero/matches" / spec.key()[:16]

    def first(number: int, moves: tuple[int, ...]) -> Reply:
        return Reply() if not won else (Reply(number) if len(moves) < 2 else Reply(rules.num_points))

    def second(number: int, moves: tuple[int, ...]) -> Reply:
        return (passes(rules) if won else plays(number, rules.num_points))(number, moves)

    play_match(folder, spec, (lambda: Scripted("first", first), lambda: Scripted("second", second)), num_games)
    return folder


def row_of(ladder: Ladder, name: str) -> LadderRow:
    (row,) = [row for row in ladder.rows if row.entry.name.startswith(name)]
    return row


def lines_of(ladder: Ladder) -> str:
    return "\n".join(ladder_lines(ladder))


def test_players_of_gating_are_those_of_zero_match(recorded):
    with ProjectRecord(recorded.home) as record:
        for number in (0, 1):
            generation = record.generations("tiny")[number]
            assert generation.entry and generation.params
            simulations = generation.params.gating.num_simulations
            made = network_id(generation.tag, generation.entry.champion, generation.params, simulations)
            assert made == resolved_network(recorded.home, generation.tag).id
            raw = resolved_network(recorded.home, f"raw:{generation.tag}").id
            assert network_id(generation.tag, generation.entry.champion, generation.params, 0) == raw


def test_champions_are_rated_from_the_record_alone(recorded):
    ladder = lineage_ladder(recorded.home, "tiny")
    assert {row.entry.generation for row in ladder.rows} == {0, 1} and len(ladder.rows) == 2, (
        "the refused challenger is not on it"
    )
    first = row_of(ladder, "tiny/gen-0000")
    assert (first.elo, first.low, first.high) == (0.0, 0.0, 0.0)
    (result,) = ladder.results
    assert (result.source, result.kind, result.num_games) == ("tiny/gen-0001", "gate", 16)
    assert (row_of(ladder, "tiny/gen-0001").elo > 0) == (result.score.points > result.score.games / 2)
    assert [(point.generation, point.tag) for point in ladder.curve] == [(k, f"tiny/gen-{k:04d}") for k in range(3)]
    assert ladder.curve[1].elo == ladder.curve[2].elo, "after a refusal the champion is the same"
    assert [point.games for point in ladder.curve] == [0, 24, 48]
    seconds = [point.seconds for point in ladder.curve if point.seconds is not None]
    assert len(seconds) == 3 and seconds[2] > seconds[1] > seconds[0] == 0
    assert "all results are of gating" in lines_of(ladder) and "no group has an anchor" in lines_of(ladder)
    assert Ladder.model_validate_json(canonical_json(ladder)) == ladder


def test_an_anchor_sets_the_scale_and_losing_every_game_is_finite(home, params):
    write_match(home, params.game, (champion_id(home, 1), GNUGO_10), won=False)
    ladder = lineage_ladder(home, "tiny")
    assert row_of(ladder, "GNU Go").elo == ANCHORS["gnugo"]
    assert (ladder.scales[0].is_anchor, ladder.scales[0].num_players) == (True, 3)
    beaten = row_of(ladder, "tiny/gen-0001")
    assert -1000 < beaten.low < beaten.elo < ANCHORS["gnugo"] - 100
    assert (beaten.games, beaten.opponents) == (16 + 6, 2), "five equal games were resigned on the empty board"
    assert "has an anchor" not in lines_of(ladder) and "all results" not in lines_of(ladder)


def test_how_well_the_ratings_fit_is_said(home, params):
    champion = champion_id(home, 1)
    for pair in ((champion, RANDOM), (RANDOM, GNUGO_10), (GNUGO_10, champion)):
        assert "fit" not in lines_of(lineage_ladder(home, "tiny")), "no degree of freedom yet"
        write_match(home, params.game, pair)
    ladder = lineage_ladder(home, "tiny")
    fit = ladder.scales[0].fit
    names = {row.entry.name for row in ladder.rows}
    assert fit is not None and fit.ratio > 1 and {*fit.pair} < names
    expected = (
        f"fit: 4 pairs for 3 ratings; results differ from the model {fit.ratio:.1f} times as much as chance (1.0 "
        f"would be chance); most for {fit.pair[0]} against {fit.pair[1]}: {fit.expected:.1%} expected, "
        f"{fit.found:.1%} found; intervals are widened by {fit.ratio**0.5:.1f}"
    )
    assert expected in lines_of(ladder).splitlines()
    assert Ladder.model_validate_json(canonical_json(ladder)) == ladder
    older = ladder.model_dump(mode="json")
    del older["scales"][0]["fit"]
    assert "fit" not in lines_of(Ladder.model_validate(older, strict=False)), "the file of an older version"


def test_the_fit_of_several_groups_has_their_numbers():
    fit = Fit(pairs=3, ratings=2, deviance=0.4, ratio=0.5, pair=("a", "b"), expected=0.62, found=0.81)
    assert list(fit_lines([None, fit])) == [
        "fit of group 2: 3 pairs for 2 ratings; results differ from the model 0.5 times as much as chance (1.0 "
        "would be chance); most for a against b: 62.0% expected, 81.0% found"
    ]


def test_other_simulations_are_another_player_in_its_own_group(home, params):
    write_match(home, params.game, (champion_id(home, 1, 50), RANDOM))
    ladder = lineage_ladder(home, "tiny")
    assert [len([row for row in ladder.rows if row.group == group]) for group in (0, 1)] == [2, 2]
    assert row_of(ladder, "tiny/gen-0001, 50 simulations").group != row_of(ladder, "tiny/gen-0001, 6 ").group
    assert "the players form 2 groups without games between them" in lines_of(ladder)
    assert len(list(ladder_tables(ladder))) == 2
    assert ladder.simulations == 6
    other = lineage_ladder(home, "tiny", simulations=50)
    assert other.simulations == 50 and [point.generation for point in other.curve] == [1, 2]
    without = lineage_ladder(home, "tiny", simulations=51)
    assert without.curve == () and "no champion has games with that number of simulations" in lines_of(without)


@pytest.mark.parametrize(("low", "high", "text"), [(-0.3, 20.4, "0 to 20"), (-40.6, -0.4, "-41 to 0"), (0, 0, "given")])
def test_an_interval_has_no_negative_zero(low, high, text):
    assert OnScale(elo=0, low=low, high=high).interval == text


def test_of_two_precisions_the_curve_has_the_narrower_interval(home, params):
    one = champion_id(home, 1)
    other = one.model_copy(update={"settings": one.settings | {"precision": "bf16", "made_for_precision": "fp32"}})
    write_match(home, params.game, (other, one), won=False)
    ladder = lineage_ladder(home, "tiny")
    rows = [row for row in ladder.rows if row.entry.generation == 1]
    assert len(rows) == 2 and len({row.entry.conditions for row in rows}) == 1
    better, worse = sorted(rows, key=lambda row: row.high - row.low)
    assert better.entry.key == key_of(one) != worse.entry.key
    assert [point.key for point in ladder.curve[1:]] == [key_of(one)] * 2


def test_matches_of_another_game_or_lineage_do_not_count(home, params, caplog):
    before = lineage_ladder(home, "tiny")
    write_match(home, params.game.model_copy(update={"komi": 6.5}), (champion_id(home, 1), RANDOM))
    stranger = PlayerId(name="kid", kind="network", settings=champion_id(home, 1).settings | {"weights": "f" * 64})
    write_match(home, params.game, (stranger, RANDOM))
    broken = write_match(home, params.game, (champion_id(home, 1), RANDOM), num_games=4)
    write_atomic(broken / "result.json", b"{}")
    assert lineage_ladder(home, "tiny") == before
    assert "match skipped: " in caplog.text


def test_only_the_longest_of_equal_matches_counts(home, params):
    pair = (champion_id(home, 1), RANDOM)
    write_match(home, params.game, pair, num_games=4)
    longest = write_match(home, params.game, pair, num_games=8)
    write_match(home, params.game, pair, num_games=6)
    other = write_match(home, params.game, pair, num_games=4, seed=2)
    # The same champion after a refused challenger.
    write_match(home, params.game, (pair[0].model_copy(update={"name": "tiny/gen-0009"}), RANDOM), num_games=6)
    matches = [result for result in lineage_ladder(home, "tiny").results if result.kind == "match"]
    assert {(result.source, result.num_games) for result in matches} == {(longest.name, 8), (other.name, 4)}


def test_the_curve_has_the_conditions_of_most_champions(home, params):
    """A champion counts once, also if it was rated with several precisions."""
    for precision in ("bf16", "fp32"):
        one = champion_id(home, 1, 50)
        settings = one.settings | {"precision": precision, "made_for_precision": "fp32"}
        write_match(home, params.game, (one.model_copy(update={"settings": settings}), RANDOM))
    ladder = lineage_ladder(home, "tiny")
    of_fifty = [row for row in ladder.rows if row.entry.simulations == 50]
    assert len(of_fifty) == 2 and {row.entry.generation for row in of_fifty} == {1}
    assert ladder.simulations == 6 and [point.generation for point in ladder.curve] == [0, 1, 2]


def test_a_repeated_game_counts_once():
    result = Result(
        source="x",
        kind="match",
        players=("a" * 64, "b" * 64),
        wins=6,
        losses=2,
        draws=0,
        unique_games=2,
        opening_moves=0,
    )
    assert result.score[2:] == (1.5, 2)


def test_equal_names_are_disambiguated():
    ids = [RANDOM.model_copy(update={"settings": {"c_puct": c, "root": "puct"}}) for c in (1.5, 2.0)]
    assert sorted(disambiguate([*ids, ids[0]]).values()) == ["random, c_puct 1.5", "random, c_puct 2.0"]
    assert disambiguate([RANDOM, RANDOM]) == {key_of(RANDOM): "random"}


def test_long_settings_that_differ_at_their_end_give_different_names():
    texts = [f"gnugo --mode gtp --level {level}, {digit * 64} gnugo" for level, digit in ((1, "a"), (5, "b"))]
    ids = [RANDOM.model_copy(update={"settings": {"command": text}}) for text in texts]
    assert sorted(disambiguate(ids).values()) == [
        f"random, command gnugo --mode gtp --level {level}, {digit * 12} gnugo" for level, digit in ((1, "a"), (5, "b"))
    ]


def test_a_ladder_without_results_says_so(recorded):
    ladder = lineage_ladder(recorded.home, "tiny")
    empty = ladder.model_copy(update={"rows": (), "curve": (), "scales": (), "results": ()})
    assert "has no results" in lines_of(empty)


def test_an_interrupted_schedule_is_continued(home, monkeypatch):
    monkeypatch.setattr(scheduling, "MATCH_GAMES", 4)
    seen = []

    def killed(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(play_schedule(home, "tiny", 12, AGAINST, progress=killed))
    assert seen == [(k, 12) for k in (0, 1, 2, 3, 4, 4, 5, 6)]
    folders = set((home / ".zero/matches").iterdir())
    assert len(folders) == 2 and len([folder for folder in folders if (folder / "result.json").exists()]) == 1
    first = next(iter(play_schedule(home, "tiny", 12, AGAINST)))
    assert first.folder in folders and set((home / ".zero/matches").iterdir()) == folders, "the interrupted match"
    ladder = lineage_ladder(home, "tiny")
    assert len(ladder.scales) == 1 and len(ladder.rows) == 4, "groups are connected first"
    assert row_of(ladder, "rollout").elo == ANCHORS["rollout"]
    more = list(play_schedule(home, "tiny", 8, AGAINST))
    assert [played.table.result.as_black.wins + played.table.result.as_black.losses for played in more] == [2, 2]
    assert all("network" in {player.kind for player in played.spec.players} for played in more)
    with ProjectRecord(home) as record:
        rated = rate_lineage(home, record.ancestry("tiny"))
        entries = line_up(home, rated, AGAINST)
    assert [entry.text for entry in entries] == ["random", "tiny/gen-0000", "tiny/gen-0001", "rollout:50"]
    assert {entry.key for entry in entries} == rated.entries.keys()


def test_each_match_of_a_pair_has_its_own_seed(home, params):
    pair = (champion_id(home, 1), RANDOM)
    keys = {key_of(player) for player in pair}
    assert free_seed(home, keys) == 1
    write_match(home, params.game, pair, seed=1)
    write_match(home, params.game, (pair[1], pair[0]), seed=3)
    assert free_seed(home, keys) == 2
    write_match(home, params.game, pair, seed=2)
    assert free_seed(home, keys) == 4


@pytest.mark.parametrize(
    "games, against, message",
    [
        (3, AGAINST, "give an even number of at least 2"),
        (0, AGAINST, "give an even number of at least 2"),
        (2, ("tiny/gen-0000",), "'tiny/gen-0000' is not a fixed opponent"),
        (2, ("shipped:go9",), r"'shipped:go9' plays another game \(size 9 and 5"),
    ],
)
def test_a_schedule_that_cannot_be_played_is_rejected(recorded, games, against, message):
    with pytest.raises(ParamsError, match=message):
        list(play_schedule(recorded.home, "tiny", games, against))


def test_a_shipped_player_is_a_fixed_opponent(home, tmp_path, monkeypatch):
    export_player(home, "tiny/gen-0000", tmp_path / "shipped/tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path / "shipped")
    monkeypatch.setattr(scheduling, "MATCH_GAMES", 2)
    champions_keys = {key_of(champion_id(home, number)) for number in (0, 1)}
    names = set()
    for played in play_schedule(home, "tiny", 8, ("random", "shipped:tiny,simulations=3")):
        assert champions_keys & {key_of(player) for player in played.spec.players}, "each match has a champion"
        names |= {player.name for player in played.spec.players}
    assert "shipped:tiny, 3 simulations" in names
    assert len(lineage_ladder(home, "tiny").scales) == 1


def test_a_shipped_player_that_is_a_champion_is_listed_once(home, tmp_path, monkeypatch):
    export_player(home, "tiny/gen-0001", tmp_path / "shipped/tiny")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path / "shipped")
    with ProjectRecord(home) as record:
        rated = rate_lineage(home, record.ancestry("tiny"))
        entries = line_up(home, rated, ("random", "shipped:tiny"))
    assert [entry.text for entry in entries] == ["random", "tiny/gen-0000", "tiny/gen-0001"]


def test_without_mlflow_the_ladder_is_shown_with_a_warning(home, monkeypatch):
    monkeypatch.chdir(home)
    done = CliRunner().invoke(app, ["elo", "tiny"], env={"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": "nowhere"})
    assert done.exit_code == 0 and (home / ".zero/ladders/tiny/ladder.json").exists()
    assert "not tracked: MLFLOW_TRACKING_URI = 'nowhere'" in done.stderr
    assert "write it later with `zero elo tiny`" in done.stderr

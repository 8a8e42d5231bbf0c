"""Whole shards: what a game is does not depend on its company, and its record can be replayed."""

import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.games.kernel_game import KernelGame
from tests.golden.golden import check_golden
from tests.network.networks import lived_in_network
from tests.parameters import profile_params
from tests.play.shards import MATCH, SELFPLAY, digest_of, play_shard, same_games
from tests.search.evaluators import ColourEvaluator, EquivariantEvaluator, HashEvaluator
from zero.games.rules import go_rules, gomoku_rules
from zero.network.inference import new_evaluator
from zero.network.weights import weights_bytes
from zero.play import boards, shard
from zero.play.shard import SMALLEST_BATCH, batch_shape
from zero.search.evaluator import UniformEvaluator

GO4, GO5, GOMOKU = go_rules(4, 4, 0.5), go_rules(5, 5, 0.5), gomoku_rules(5, 5, 4)
RULES = {"go": GO4, "go with suicide": go_rules(3, 4, 0.0, allow_suicide=True), "gomoku": GOMOKU}
NUM_GAMES = 10
PARTS = [(1, True), (2, False), (2, True), (4, False), (4, True)]
"""Search threads and half batches of more than one part."""
NUM_PARTED = 5


def hashes(rules, *salts):
    return [HashEvaluator(rules, salt) for salt in salts or ("",)]


class Watched(HashEvaluator):
    """Remembers the shapes it was asked in, and who was to play in the rows."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.shapes: list[int] = []

    def evaluate(self, planes, prior, value):
        self.shapes.append(len(planes))
        super().evaluate(planes, prior, value)


class Touchy(HashEvaluator):
    """Its answers depend on how often it was asked, on the row and on the shape of the batch, as rounding may."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.calls = 0

    def evaluate(self, planes, prior, value):
        super().evaluate(planes, prior, value)
        self.calls += 1
        value *= 1 - 0.01 * ((7 * self.calls + np.arange(len(planes)) + 3 * len(planes)) % 11).astype(np.float32)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("num_slots", [1, 3, 20])
def test_self_play_games_do_not_depend_on_their_company(name, num_slots):
    rules = RULES[name]
    together = play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES)
    other = play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES, num_slots)
    assert same_games(other.games, together.games)
    assert other.num_evaluations == together.num_evaluations


@pytest.mark.parametrize("num_slots", [1, 3])
def test_match_games_do_not_depend_on_their_company(num_slots):
    together = play_shard(GO4, MATCH, hashes(GO4, "challenger", "champion"), NUM_GAMES)
    assert same_games(
        play_shard(GO4, MATCH, hashes(GO4, "challenger", "champion"), NUM_GAMES, num_slots).games, together.games
    )


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
def test_a_game_is_the_same_in_whichever_shard_it_is(settings):
    evaluators = hashes(GO4, "challenger", "champion")[: settings.num_players]
    whole = play_shard(GO4, settings, evaluators, NUM_GAMES).games
    tail = play_shard(GO4, settings._replace(first_game=7), evaluators, NUM_GAMES - 7).games
    assert [record.game for record in tail] == [7, 8, 9]
    assert same_games(tail, whole[7:])


def test_a_shard_played_again_is_the_same():
    one, other = (play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES) for _ in range(2))
    assert same_games(one.games, other.games)


@pytest.mark.parametrize(
    "changed",
    [
        SELFPLAY._replace(c_puct=0.5),
        SELFPLAY._replace(parent_first_play=True),
        SELFPLAY._replace(num_simulations=3),
        SELFPLAY._replace(temperature_moves=3),
        SELFPLAY._replace(dirichlet_fraction=0.5),
        SELFPLAY._replace(dirichlet_concentration=3.0),
        SELFPLAY._replace(tree_reuse=False),
        SELFPLAY._replace(random_symmetry=False),
    ],
    ids=["c_puct", "first_play", "simulations", "temperature", "fraction", "concentration", "reuse", "symmetry"],
)
def test_every_setting_tells(changed):
    one, other = (play_shard(GO4, settings, hashes(GO4), 4, max_nodes=60).games for settings in (SELFPLAY, changed))
    assert not same_games(one, other)


def replayed(rules, record) -> KernelGame:
    """The end of a game; every move is checked for being legal on the way."""
    game = KernelGame(rules)
    for move, action in enumerate(record.actions):
        counts = record.visit_counts[move]
        legal = game.mask()
        assert not counts[~legal].any()
        assert counts[action] > 0
        game.play(int(action))
    return game


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize("name", RULES)
def test_records_obey_the_rules(name, settings):
    rules = RULES[name]
    played = play_shard(rules, settings, hashes(rules, "a", "b")[: settings.num_players], NUM_GAMES)
    for record in played.games:
        game = replayed(rules, record)
        assert game.ended
        assert record.outcome == game.outcome()
        assert record.margin == game.margin()
        assert record.visit_counts.shape == (len(record.actions), rules.num_actions)
        assert np.abs(record.root_values).max() <= 1.0
        if settings is MATCH:
            assert (record.visit_counts.max(axis=1) == record.visit_counts[range(game.num_moves), record.actions]).all()


def test_visits_of_a_move_sum_to_the_simulations_where_no_tree_is_reused():
    settings = SELFPLAY._replace(tree_reuse=False)
    for record in play_shard(GO4, settings, hashes(GO4), 4).games:
        assert set(record.visit_counts.sum(axis=1).tolist()) == {settings.num_simulations}


def test_visits_of_a_move_sum_to_the_simulations_and_those_of_the_reused_tree():
    # The child of an edge visited n times has n - 1 simulations of its own: the first made it.
    for record in play_shard(GO4, SELFPLAY, hashes(GO4), 4, max_nodes=400).games:
        sums = record.visit_counts.sum(axis=1)
        followed = record.visit_counts[range(len(sums)), record.actions]
        assert sums[0] == SELFPLAY.num_simulations
        assert (sums[1:] == followed[:-1] - 1 + SELFPLAY.num_simulations).all()


def test_ends_of_games_are_not_asked_about():
    # Nine moves: each asks about its root and one leaf, but the last, whose leaf is the full board.
    rules = gomoku_rules(1, 9, 9)
    settings = SELFPLAY._replace(num_simulations=1, tree_reuse=False)
    played = play_shard(rules, settings, [UniformEvaluator()], 2)
    assert [len(record.actions) for record in played.games] == [9, 9]
    assert played.num_evaluations == 2 * (9 + 8)


def test_a_reused_root_is_not_asked_about_again():
    rules = gomoku_rules(1, 9, 9)
    settings = SELFPLAY._replace(num_simulations=1, temperature_moves=0)
    assert play_shard(rules, settings, [UniformEvaluator()], 1).num_evaluations == 9


def test_all_ways_to_end_come_up():
    games = [
        record for rules in RULES.values() for record in play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES).games
    ]
    games += play_shard(GOMOKU._replace(in_a_row=5), SELFPLAY, hashes(GOMOKU), NUM_GAMES).games
    games += play_shard(GO4._replace(max_moves=8), SELFPLAY, hashes(GO4), NUM_GAMES).games
    assert {record.end for record in games} == {"passes", "length", "line", "full"}
    for record in games:
        if record.end == "passes":
            assert record.actions[-1] == record.actions[-2] == record.visit_counts.shape[1] - 1
        if record.end == "full":
            assert (len(record.actions), record.outcome, record.margin) == (25, 0, 0.0)
        if record.end == "line":
            assert record.outcome == (1 if len(record.actions) % 2 else -1)


def test_a_game_that_may_not_go_on_ends_by_length():
    for record in play_shard(GO5._replace(max_moves=7), SELFPLAY, hashes(GO5), 6).games:
        assert len(record.actions) <= 7
        assert record.end == (
            "length" if len(record.actions) == 7 and record.actions[-2:].tolist() != [25, 25] else "passes"
        )


def test_colours_in_a_match_alternate():
    for first_game in (0, 6):
        games = play_shard(GO4, MATCH._replace(first_game=first_game), hashes(GO4, "a", "b"), 4).games
        assert [(record.black, record.white) for record in games] == [("0", "1"), ("1", "0")] * 2


def test_self_play_has_one_player():
    assert {(record.black, record.white) for record in play_shard(GO4, SELFPLAY, hashes(GO4), 3).games} == {("0", "0")}


def test_each_players_questions_go_to_its_own_evaluator():
    # Player 0 thinks that Black is better, player 1 that White is: the root values tell who was asked.
    opinion = {"0": 0.5, "1": -0.25}
    games = play_shard(GO5, MATCH, [ColourEvaluator(opinion["0"]), ColourEvaluator(opinion["1"])], 4).games
    for record in games:
        expected = [opinion[record.black], -opinion[record.white]] * 3  # each as its mover sees it
        assert record.root_values[:6].tolist() == expected


def test_a_players_tree_knows_nothing_of_the_opponents_thoughts():
    # Against any opponent who makes the same moves, a player searches the same.
    rules = gomoku_rules(1, 12, 12)
    plain = MATCH._replace(random_symmetry=False)
    one, other = (play_shard(rules, plain, hashes(rules, "a", salt), 1, max_nodes=200).games[0] for salt in "bc")
    shared = next(i for i, (x, y) in enumerate(zip(one.actions, other.actions, strict=True)) if x != y)
    assert shared % 2 == 1  # it is the opponent who strays first
    assert np.array_equal(one.visit_counts[:shared:2], other.visit_counts[:shared:2])
    assert not np.array_equal(one.visit_counts[1], other.visit_counts[1])


def test_an_equivariant_network_plays_the_same_under_random_symmetries():
    evaluators = [EquivariantEvaluator(GOMOKU, salt) for salt in "ab"]
    one, other = (
        play_shard(GOMOKU, MATCH._replace(random_symmetry=flag), evaluators, 4).games for flag in (False, True)
    )
    assert same_games(one, other)
    assert min(len(record.actions) for record in one) >= 7


def test_a_network_that_is_not_plays_many_games_by_random_symmetries():
    evaluators = hashes(GO4, "a", "b")
    fixed, turned = (
        play_shard(GO4, MATCH._replace(random_symmetry=flag), evaluators, 10).games for flag in (False, True)
    )
    sequences = [{record.actions.tobytes() for record in games} for games in (fixed, turned)]
    assert len(sequences[0]) == 2  # one with each colour: without chance a match is two games
    assert len(sequences[1]) == 10


def test_self_play_games_are_unlike():
    games = play_shard(GO5, SELFPLAY, hashes(GO5), 40).games
    assert len({record.actions.tobytes() for record in games}) == 40


def test_without_any_chance_self_play_is_one_game():
    settings = SELFPLAY._replace(random_symmetry=False, temperature_moves=0, dirichlet_fraction=0.0)
    games = play_shard(GO5, settings, hashes(GO5), 5).games
    assert len({record.actions.tobytes() for record in games}) == 1


@pytest.mark.parametrize(
    ("num_questions", "num_slots", "rows"),
    [
        (64, 64, 64),
        (33, 64, 64),
        (32, 64, 32),
        (9, 64, 16),
        (8, 64, SMALLEST_BATCH),
        (1, 64, SMALLEST_BATCH),
        (1, 8, 8),
        (1, 4, 4),
        (1, 1, 1),
        (51, 100, 100),
        (50, 100, 50),
        (1, 100, 25),  # 25 has no half
        (7, 12, 12),  # half of it would be below the smallest batch
    ],
)
def test_batch_shape(num_questions, num_slots, rows):
    assert batch_shape(num_questions, num_slots) == rows


def test_batches_have_few_shapes_and_shrink_as_the_last_games_end():
    watched = Watched(GO4)
    play_shard(GO4, SELFPLAY, [watched], 40, num_slots=32)
    assert set(watched.shapes) == {32, 16, 8}
    assert watched.shapes == sorted(watched.shapes, reverse=True)


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize(("search_threads", "half_batches"), PARTS)
def test_parts_do_not_change_a_game(search_threads, half_batches, settings):
    # Each row is judged alone here, so that every split of the shard must give the same games.
    evaluators = hashes(GO4, "a", "b")[: settings.num_players]
    whole = play_shard(GO4, settings, evaluators, NUM_PARTED)
    found = play_shard(GO4, settings, evaluators, NUM_PARTED, search_threads=search_threads, half_batches=half_batches)
    assert same_games(found.games, whole.games)
    assert [record.game for record in found.games] == list(range(NUM_PARTED))
    assert found.num_evaluations == whole.num_evaluations


@pytest.mark.parametrize(("search_threads", "half_batches"), PARTS)
@pytest.mark.parametrize("num_games", [1, 3])
def test_more_parts_than_games_are_not_made(search_threads, half_batches, num_games):
    whole = play_shard(GO4, SELFPLAY, hashes(GO4), num_games)
    found = play_shard(GO4, SELFPLAY, hashes(GO4), num_games, search_threads=search_threads, half_batches=half_batches)
    assert same_games(found.games, whole.games)


@pytest.fixture
def one_torch_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("backend", ["torch", "openvino"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), (1, True), (4, False), (2, True)])
def test_games_of_a_network_in_parts_are_the_same_each_time(search_threads, half_batches, backend):
    data, profile = weights_bytes(lived_in_network()), profile_params(backend=backend)
    one, other = (
        play_shard(
            GO5,
            SELFPLAY,
            [new_evaluator(data, profile)],
            num_games=6,
            num_slots=4,
            search_threads=search_threads,
            half_batches=half_batches,
        )
        for _ in range(2)
    )
    assert same_games(one.games, other.games)
    for record in one.games:
        assert replayed(GO5, record).ended


@pytest.mark.parametrize(
    ("search_threads", "half_batches", "largest"), [(1, True, 16), (2, False, 32), (4, False, 32), (2, True, 16)]
)
def test_parts_share_batches_that_shrink_as_the_last_games_end(search_threads, half_batches, largest):
    watched = Watched(GO4)
    play_shard(GO4, SELFPLAY, [watched], 40, num_slots=32, search_threads=search_threads, half_batches=half_batches)
    assert set(watched.shapes) == {rows for rows in (32, 16, 8) if rows <= largest}
    assert watched.shapes.index(8) > watched.shapes.index(largest)


class Patient(HashEvaluator):
    """Judges its first batches only after a search has ended that began meanwhile."""

    NUM_BATCHES = 10

    def __init__(self, rules) -> None:
        super().__init__(rules)
        self.changed = threading.Condition()
        self.judging = False
        self.num_batches = self.num_searches = self.num_overlaps = 0

    def evaluate(self, planes, prior, value):
        with self.changed:
            self.judging, before = True, self.num_searches
            self.changed.notify_all()
            if self.num_batches < self.NUM_BATCHES:
                self.num_overlaps += self.changed.wait_for(lambda: self.num_searches > before, timeout=20)
            self.judging = False
            self.num_batches += 1
        super().evaluate(planes, prior, value)

    def searches(self, search, num_before: int):
        """`search`, told to wait until a batch is being judged; the first `num_before` need not."""
        calls = itertools.count()

        def patient(*arguments):
            with self.changed:
                if next(calls) >= num_before and self.num_batches < self.NUM_BATCHES:
                    self.changed.wait_for(lambda: self.judging, timeout=20)
            questions = search(*arguments)
            with self.changed:
                self.num_searches += 1
                self.changed.notify_all()
            return questions

        return patient


@pytest.mark.parametrize("search_threads", [1, 2])
def test_one_half_is_searched_while_the_other_is_judged(search_threads, monkeypatch):
    evaluator = Patient(GO4)
    monkeypatch.setattr(shard, "advance", evaluator.searches(boards.advance, search_threads))
    found = play_shard(GO4, SELFPLAY, [evaluator], NUM_GAMES, search_threads=search_threads, half_batches=True)
    assert evaluator.num_overlaps == Patient.NUM_BATCHES
    assert same_games(found.games, play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES).games)


class SubmittedEvaluator(HashEvaluator):
    """Judges on a thread of its own, one batch at a time."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.pool = ThreadPoolExecutor(1)
        self.work: Future[None] | None = None

    def submit(self, planes, prior, value):
        assert self.work is None
        self.work = self.pool.submit(self.evaluate, planes.copy(), prior, value)

    def wait(self):
        assert self.work is not None
        self.work.result()
        self.work = None


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), *PARTS])
def test_evaluators_that_work_by_themselves_are_waited_for(search_threads, half_batches, settings):
    salts = "ab"[: settings.num_players]
    found = play_shard(
        GO4,
        settings,
        [SubmittedEvaluator(GO4, salt) for salt in salts],
        NUM_PARTED,
        search_threads=search_threads,
        half_batches=half_batches,
    )
    assert same_games(found.games, play_shard(GO4, settings, hashes(GO4, *salts), NUM_PARTED).games)


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), *PARTS])
@pytest.mark.parametrize("stop_after", [1, 4, 9])
def test_games_that_ended_before_a_stop_are_those_of_the_shard(stop_after, search_threads, half_batches, settings):
    def play(stop: int):
        touchy = [Touchy(GO4, salt) for salt in ("challenger", "champion")[: settings.num_players]]
        return play_shard(GO4, settings, touchy, NUM_GAMES, 6, 40, None, search_threads, half_batches, stop)

    whole, stopped = play(0), play(stop_after)
    numbers = [record.game for record in stopped.games]
    assert stop_after <= len(numbers) <= NUM_GAMES
    assert stopped.num_evaluations < whole.num_evaluations
    assert same_games(stopped.games, [whole.games[number] for number in numbers])
    assert same_games(play(stop_after).games, stopped.games)  # no timing decides which have ended


def test_a_stop_beyond_the_last_game_plays_all():
    whole = play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES)
    more = play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES, stop_after=99)
    assert same_games(more.games, whole.games)
    assert more.num_evaluations == whole.num_evaluations


def test_progress_of_a_stopped_shard_counts_the_games_that_ended():
    seen: list[int] = []
    stopped = play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES, progress=seen.append, stop_after=3)
    assert seen[-1] == len(stopped.games) < NUM_GAMES


def test_more_slots_than_games_are_not_made():
    watched = Watched(GO4)
    play_shard(GO4, SELFPLAY, [watched], 5, num_slots=64)
    assert set(watched.shapes) == {5}


def test_progress_counts_the_games_to_the_last():
    seen: list[int] = []
    play_shard(GO4, SELFPLAY, hashes(GO4), 12, 4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] < 6
    assert seen[-1] == 12


def test_the_record_does_not_share_memory_with_the_shard():
    played = play_shard(GO4, SELFPLAY, hashes(GO4), 2)
    assert all(array.base is None for record in played.games for array in record[:3])


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize("name", RULES)
def test_pinned_games(name, settings):
    # Shards in a store could not be made again if these moved.
    rules = RULES[name]
    games = play_shard(rules, settings, hashes(rules, "a", "b")[: settings.num_players], 6).games
    found = [
        {
            "actions": " ".join(str(action) for action in record.actions),
            "outcome": record.outcome,
            "margin": record.margin,
            "end": record.end,
            "sha256": digest_of(record),
        }
        for record in games
    ]
    check_golden(f"{name.replace(' ', '-')}-{'match' if settings is MATCH else 'selfplay'}", found)

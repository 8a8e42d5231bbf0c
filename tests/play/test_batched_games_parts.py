"""A shard in parts, for several threads or two halves, and one that is stopped early: its games are the same."""

import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.network.networks import randomized_network
from tests.parameters import profile_params
from tests.play.shards import GO4, GO5, MATCH, NUM_GAMES, SELFPLAY, Watched, hashes, play_shard, replayed, same_games
from tests.search.evaluators import HashEvaluator
from zero.network.inference import new_evaluator
from zero.network.weights import weights_bytes
from zero.play import batched_games as shard
from zero.play import boards

PARTS = [(1, True), (2, False), (2, True), (4, False), (4, True)]
"""Search threads and half batches of more than one part."""
NUM_PARTED = 5


class Touchy(HashEvaluator):
    """Its answers depend on how often it was asked, on the row and on the shape of the batch, as rounding may."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.calls = 0

    def evaluate(self, planes, prior, value):
        super().evaluate(planes, prior, value)
        self.calls += 1
        value *= 1 - 0.01 * ((7 * self.calls + np.arange(len(planes)) + 3 * len(planes)) % 11).astype(np.float32)


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
    data, profile = weights_bytes(randomized_network()), profile_params(backend=backend)
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
    assert set(watched.shapes) == {rows for rows in (32, 24, 16, 8) if rows <= largest}
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

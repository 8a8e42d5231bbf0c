"""A shard in parts, for threads or double buffering, and a shard that stops early: the games do not change."""

import functools
import itertools
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from tests.network.networks import randomized_network
from tests.parameters import profile_params
from tests.play.shards import GO4, GO5, MATCH, NUM_GAMES, SELFPLAY, Watched, hashes, play_shard, replayed, same_games
from tests.search.evaluators import HashEvaluator
from zero.errors import ParamsError
from zero.network.inference import new_evaluator
from zero.network.weights import weights_bytes
from zero.play import batched_games, lockstep_games
from zero.search.evaluator import MAX_SUBMITTED

PARTS = [(1, True), (2, False), (2, True), (4, False), (4, True)]
"""(search_threads, half_batches) with more than one part."""
NUM_PARTED = 5


class BatchDependentEvaluator(HashEvaluator):
    """Results depend on the number of earlier batches, the row and the shape of the batch, as rounding may."""

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
    # Each row is evaluated alone, so every split of the shard must give the same games.
    evaluators = hashes(GO4, "a", "b")[: settings.num_players]
    complete = play_shard(GO4, settings, evaluators, NUM_PARTED)
    found = play_shard(GO4, settings, evaluators, NUM_PARTED, search_threads=search_threads, half_batches=half_batches)
    assert same_games(found.games, complete.games)
    assert [record.game for record in found.games] == list(range(NUM_PARTED))
    assert found.num_evaluations == complete.num_evaluations


@pytest.mark.parametrize(("search_threads", "half_batches"), PARTS)
@pytest.mark.parametrize("num_games", [1, 3])
def test_there_are_no_more_parts_than_games(search_threads, half_batches, num_games):
    complete = play_shard(GO4, SELFPLAY, hashes(GO4), num_games)
    found = play_shard(GO4, SELFPLAY, hashes(GO4), num_games, search_threads=search_threads, half_batches=half_batches)
    assert same_games(found.games, complete.games)


@pytest.mark.parametrize("backend", ["torch", "openvino"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), (1, True), (4, False), (2, True)])
def test_games_of_a_network_in_parts_are_reproducible(search_threads, half_batches, backend):
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


class SubmittedEvaluator(HashEvaluator):
    """Takes up to two batches, and evaluates them in its own thread."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.pool = ThreadPoolExecutor(1)
        self.work: deque[Future[None]] = deque()

    def submit(self, planes, prior, value):
        assert len(self.work) < MAX_SUBMITTED
        self.work.append(self.pool.submit(self.evaluate, planes.copy(), prior, value))

    def wait(self):
        self.work.popleft().result()


class DelayedEvaluator(SubmittedEvaluator):
    """Evaluates its first batches only after a search that started meanwhile has ended."""

    NUM_BATCHES = 10

    def __init__(self, rules) -> None:
        super().__init__(rules)
        self.changed = threading.Condition()
        self.num_begun = self.num_searches = self.num_overlaps = 0

    def evaluate(self, planes, prior, value):
        with self.changed:
            before = self.num_searches
            self.num_begun += 1
            self.changed.notify_all()
            if self.num_begun <= self.NUM_BATCHES:
                self.num_overlaps += self.changed.wait_for(lambda: self.num_searches > before, timeout=120)
        super().evaluate(planes, prior, value)

    def searches(self, search, num_threads: int):
        """`search`, which waits until the batch of the other half is being evaluated; the first half does not wait."""
        calls = itertools.count()

        def delayed(*arguments):
            with self.changed:
                turn = next(calls) // num_threads
                if turn <= self.NUM_BATCHES:
                    self.changed.wait_for(lambda: self.num_begun >= turn, timeout=120)
            requests = search(*arguments)
            with self.changed:
                self.num_searches += 1
                self.changed.notify_all()
            return requests

        return delayed


@pytest.mark.parametrize("search_threads", [1, 2])
def test_one_half_is_searched_while_the_other_is_evaluated(search_threads, monkeypatch):
    evaluator = DelayedEvaluator(GO4)
    search = evaluator.searches(lockstep_games.advance, search_threads)
    monkeypatch.setattr(batched_games, "bound", lambda _, *arguments: functools.partial(search, *arguments))
    found = play_shard(GO4, SELFPLAY, [evaluator], NUM_GAMES, search_threads=search_threads, half_batches=True)
    assert evaluator.num_overlaps == DelayedEvaluator.NUM_BATCHES
    assert same_games(found.games, play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES).games)


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), *PARTS])
def test_asynchronous_evaluators_give_the_same_games(search_threads, half_batches, settings):
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


class FailingEvaluator(SubmittedEvaluator):
    """The tenth call of one of its methods fails, and all later ones."""

    def __init__(self, method: str, *arguments) -> None:
        super().__init__(*arguments)
        self.method, self.num_calls = method, 0

    def count(self, method: str) -> None:
        self.num_calls += method == self.method
        if method == self.method and self.num_calls >= 10:
            raise ParamsError("the GPU's memory is too small")

    def submit(self, planes, prior, value):
        self.count("submit")
        super().submit(planes, prior, value)

    def wait(self):
        super().wait()
        self.count("wait")

    def evaluate(self, planes, prior, value):
        self.count("evaluate")
        super().evaluate(planes, prior, value)


@pytest.mark.parametrize("method", ["submit", "wait", "evaluate"])
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), *PARTS])
def test_the_error_of_an_evaluator_is_reported(search_threads, half_batches, method):
    sound, failing = SubmittedEvaluator(GO4), FailingEvaluator(method, GO4)
    with pytest.raises(ParamsError, match="memory is too small"):
        play_shard(GO4, MATCH, [sound, failing], NUM_GAMES, search_threads=search_threads, half_batches=half_batches)
    assert failing.num_calls >= 10 and not sound.work and not failing.work, "nothing is in flight"


@pytest.mark.parametrize("half_batches", [False, True])
def test_the_error_of_an_evaluator_that_is_not_asynchronous_is_reported(half_batches):
    class Failing(HashEvaluator):
        def evaluate(self, planes, prior, value):
            raise ParamsError("the batch is too large")

    with pytest.raises(ParamsError, match="the batch is too large"):
        play_shard(GO4, SELFPLAY, [Failing(GO4)], NUM_GAMES, search_threads=2, half_batches=half_batches)


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize(
    ("stop_after", "search_threads", "half_batches"),
    [*((4, *parts) for parts in [(1, False), *PARTS]), (1, 2, True), (9, 2, True)],
)
def test_an_early_stop_does_not_change_the_ended_games(stop_after, search_threads, half_batches, settings):
    def play(stop: int):
        evaluators = [BatchDependentEvaluator(GO4, salt) for salt in ("challenger", "champion")[: settings.num_players]]
        return play_shard(GO4, settings, evaluators, NUM_GAMES, 6, 40, None, search_threads, half_batches, stop)

    complete, stopped = play(0), play(stop_after)
    numbers = [record.game for record in stopped.games]
    assert stop_after <= len(numbers) <= NUM_GAMES
    assert stopped.num_evaluations < complete.num_evaluations
    assert same_games(stopped.games, [complete.games[number] for number in numbers])
    assert same_games(play(stop_after).games, stopped.games)  # which games have ended does not depend on timing


def test_progress_of_a_stopped_shard_counts_the_ended_games():
    seen: list[int] = []
    stopped = play_shard(GO4, SELFPLAY, hashes(GO4), NUM_GAMES, progress=seen.append, stop_after=3)
    assert seen[-1] == len(stopped.games) < NUM_GAMES

"""Who plays the shards: a worker's death is worth another try, the end of the run is not."""

from typing import cast

import pytest
from prefect.client.schemas.objects import State, StateType, TaskRun

from flows.players import Interruption, Players, PoolPlayers
from flows.pool import MAX_START_SHARE, START_SECONDS, UNKNOWN_SHARDS, RunEndedError, Runs, shards_a_run
from flows.tasks import was_killed
from tests.flows.asking import put
from tests.flows.examples import receipt, spec
from zero.errors import StorageError, WorkerError
from zero.shards.executor import Progress
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.storage.store import Store


class Script:
    """An executor that raises what it is told, and plays when there is nothing left."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def play(self, shard: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
        if self.errors:
            raise self.errors.pop(0)
        if progress:
            progress(shard.num_games, shard.num_games)
        return receipt(shard)


def failed_with(error: Exception) -> bool:
    run = TaskRun(task_key="play_shard", dynamic_key="0")
    return was_killed(None, run, State(type=StateType.FAILED, data=error))


def test_a_shard_is_played_with_progress() -> None:
    seen: list[tuple[int, int]] = []
    played = Players(Script()).play(spec(), lambda done, total: seen.append((done, total)))
    assert played == receipt(spec()) and seen == [(12, 12)]


def test_a_death_is_told_as_it_is() -> None:
    with pytest.raises(WorkerError, match="signal 9"):
        Players(Script(WorkerError("killed by signal 9"))).play(spec(), lambda done, total: None)


def test_a_death_after_the_end_of_the_run_is_its_end() -> None:
    team = Players(Script())

    class Dying(Script):
        def play(self, shard: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
            team.give_up()
            raise WorkerError("ended because its input was closed")

    team = Players(Dying())
    with pytest.raises(RunEndedError, match="selfplay from game 0: given up, the run is over"):
        team.play(spec(), lambda done, total: None)


def test_after_the_end_of_the_run_no_shard_is_begun() -> None:
    team = Players(Script())
    team.give_up()
    with pytest.raises(RunEndedError):
        team.play(spec(), lambda done, total: None)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (WorkerError("died"), True),
        (StorageError("disk full"), False),
        (RunEndedError("over"), False),
        (OSError(), False),
    ],
)
def test_only_a_death_is_tried_again(error: Exception, again: bool) -> None:
    assert failed_with(error) is again


def test_a_few_long_shards_are_a_run_each() -> None:
    assert [shards_a_run(left, 5, 0, seconds=800.0) for left in (64, 9, 1)] == [1, 1, 1]


def test_short_shards_share_a_run_so_that_its_start_costs_little() -> None:
    assert START_SECONDS / (shards_a_run(1000, 5, 0, seconds=10.0) * 10.0) <= MAX_START_SHARE


def test_shards_that_took_no_time_share_a_run() -> None:
    assert shards_a_run(10, 5, 0, seconds=0.0) == 2


def test_no_run_is_given_more_than_its_share_of_what_is_left() -> None:
    assert [shards_a_run(left, 4, 4, seconds=1.0) for left in (16, 5, 1)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("num_shards", "num_places", "sizes"),
    [(8, 4, [2, 2, 2, 2]), (5, 4, [2, 1, 1, 1]), (3, 4, [1, 1, 1]), (9, 2, [2, 2])],
)
def test_the_first_wave_is_shared_evenly(num_shards: int, num_places: int, sizes: list[int]) -> None:
    found: list[int] = []
    while len(found) < num_places and (left := num_shards - sum(found)):
        found.append(shards_a_run(left, num_places, len(found), seconds=None))
    assert found == sizes
    assert max(found) <= UNKNOWN_SHARDS


def test_a_run_in_reserve_has_few_shards_before_it_is_known_how_long_they_take() -> None:
    assert shards_a_run(1000, 4, 4, seconds=None) == UNKNOWN_SHARDS


def test_an_interruption_ends_what_plays_and_what_would_begin_later() -> None:
    ended: list[str] = []
    interruption = Interruption()
    interruption.ends(lambda: ended.append("early"))
    assert ended == []
    interruption.interrupt()
    interruption.ends(lambda: ended.append("late"))
    assert ended == ["early", "late"]


def test_the_end_of_the_run_ends_a_game() -> None:
    closed: list[bool] = []
    Players(Script(), lambda: closed.append(True)).give_up()
    assert closed == [True]


class Named:
    """Runs that complete, whatever is asked."""

    def run(self, *_: object) -> str:
        return "a-run"


@pytest.mark.parametrize(
    ("num_there", "error", "said"),
    [
        (0, StorageError, "run a-run did not play into the store .*give every worker the same ZERO_STORE"),
        (1, WorkerError, "of 2 shards of run a-run 1 are whole in the store"),
    ],
)
def test_shards_that_are_gone_again_are_played_again_and_a_wrong_store_is_named(tmp_path, num_there, error, said):
    store, wanted = Store(str(tmp_path)), [spec(0), spec(12)]
    for shard in wanted[:num_there]:
        put(shard, store)
    with pytest.raises(error, match=said):
        PoolPlayers(store, cast(Runs, Named())).play(wanted, "key")

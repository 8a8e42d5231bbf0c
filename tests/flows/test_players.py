"""Who plays the shards: a worker's death is worth another try, the end of the run is not."""

import pytest
from prefect.client.schemas.objects import State, StateType, TaskRun

from flows.players import Players, RunEndedError, num_players
from flows.tasks import was_killed
from tests.flows.examples import receipt, smoke_params, spec
from zero.errors import StorageError, WorkerError
from zero.params import Params
from zero.shards.executor import Progress
from zero.shards.spec import ShardReceipt, ShardSpec


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


def with_executor(kind: str, num_processes: int) -> Params:
    params = smoke_params()
    chosen = params.executor.model_copy(update={"kind": kind, "num_processes": num_processes})
    return params.model_copy(update={"executor": chosen})


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


@pytest.mark.parametrize(
    ("kind", "num_processes", "num_shards", "expected"), [("local", 3, 8, 3), ("local", 3, 2, 2), ("pool", 3, 8, 8)]
)
def test_shards_at_once(kind: str, num_processes: int, num_shards: int, expected: int) -> None:
    assert num_players(with_executor(kind, num_processes), num_shards) == expected

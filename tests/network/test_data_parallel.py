"""Data-parallel training by several processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from tests.network.networks import ARCHITECTURES, CPU, TRAINING, as_images, random_batch, randomized_network
from tests.oracle.bitboards import unpack
from zero.errors import ParamsError, StorageError, WorkerError
from zero.network import data_parallel
from zero.network.data_parallel import Peers, run_data_parallel
from zero.network.gpu_lock import LOCKS_VARIABLE, lock_gpus
from zero.network.learner import Learner, StepResult, ema_decay_after
from zero.network.losses import Targets, data_losses, weighted_sum
from zero.network.weights import load_network

NETWORK = ARCHITECTURES["residual joint with everything"]
AVERAGED = TRAINING.model_copy(update={"ema_decay": 0.9})
PAIR = CPU.model_copy(update={"training_processes": 2})
NUM_STEPS = 3
Progress = Callable[[int, int], None]


def full_batches() -> list[tuple[np.ndarray, ...]]:
    return [random_batch(seed=seed) for seed in range(NUM_STEPS)]


def learn(peers: Peers, progress: Progress) -> tuple[bytes, bytes, list[StepResult], list[list[int]], float]:
    """Trains in one process.

    Also returns the rows of a batch that each process received, and the share of processes that hold the GPU's lock.
    """
    learner = Learner(randomized_network(NETWORK), AVERAGED, "cpu", peers=peers)
    share = tuple(array[: len(array) // peers.size].copy() for array in random_batch())
    batches = peers.scatter(full_batches() if peers.rank == 0 else None, share, NUM_STEPS)
    for step in learner.train(batches):
        progress(step, NUM_STEPS)
    for tensor in load_network(learner.weights()).state_dict().values():
        mean = tensor.clone()
        peers.average([mean])
        assert torch.equal(mean, tensor), "all processes have equal weights"
    locked = torch.tensor([float(any(file.path.endswith("/0.lock") for file in psutil.Process().open_files()))])
    peers.average([locked])
    return learner.weights(), learner.player_weights(), learner.results(), rows_of_shares(peers), float(locked)


def rows_of_shares(peers: Peers) -> list[list[int]]:
    batch = (np.arange(12, dtype=np.uint64).reshape(6, 2), np.arange(6, dtype=np.float32))
    like = (np.zeros((3, 2), np.uint64), np.zeros(3, np.float32))
    (share,) = peers.scatter([batch] if peers.rank == 0 else None, like, 1)
    assert share[0][:, 0].tolist() == (2 * share[1]).tolist()
    seen = torch.zeros(peers.size, 3)
    seen[peers.rank] = torch.from_numpy(share[1])
    peers.average([seen])
    return (seen * peers.size).int().tolist()


def fail(rank: int, is_killed: bool, peers: Peers, progress: Progress) -> None:
    """One process fails while the others wait for it."""
    if peers.rank == rank:
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise StorageError("the disk is full; free some space")
    peers.average([torch.zeros(1)])


def wait_forever(peers: Peers, progress: Progress) -> None:
    if peers.rank == 0:
        progress(1, 2)
        time.sleep(600)
    peers.average([torch.zeros(1)])


def test_the_temporary_folder_may_have_any_name(tmp_path, monkeypatch):
    folder = tmp_path / "mein Jörg%20"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert run_data_parallel(rank_of, (), PAIR, None) == 0


def rank_of(peers: Peers, progress: Progress) -> int:
    return peers.rank


def means(parts: list[list[Tensor]]) -> list[Tensor]:
    return [torch.stack(tensors).mean(dim=0) for tensors in zip(*parts, strict=True)]


def test_two_processes_average_their_gradients_and_statistics(tmp_path, monkeypatch):
    """Direct computation: each half is normalised by itself; gradients and statistics are averaged; one step of SGD."""
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.setattr(data_parallel, "lock_visible_gpus", lambda profile: lock_gpus(["0"]))
    model = randomized_network(NETWORK).train()
    halves = [randomized_network(NETWORK).train() for _ in range(2)]
    momentum = [torch.zeros_like(parameter) for parameter in model.parameters()]
    average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    value_losses, value_norms = [], []
    value_head = [i for i, (name, _) in enumerate(model.named_parameters()) if name.startswith("value_head")]
    for step, batch in enumerate(full_batches(), start=1):
        gradients, buffers, losses = [], [], []
        for i, half in enumerate(halves):
            half.load_state_dict(model.state_dict())
            planes, *targets = (array[4 * i : 4 * i + 4] for array in batch)
            predictions = half.predict(as_images(unpack(planes, 25).astype(np.float32)))
            parts = data_losses(predictions, Targets(*map(torch.from_numpy, targets)), "squared_error")
            gradients.append(list(torch.autograd.grad(weighted_sum(parts, TRAINING), list(half.parameters()))))
            buffers.append([buffer.clone() for buffer in half.buffers()])
            losses.append(float(parts.value.detach()))
        value_losses.append(np.mean(losses))
        norms = [float(torch.linalg.vector_norm(means(gradients)[i])) for i in value_head]
        value_norms.append(np.linalg.norm(norms))
        with torch.no_grad():
            for m, parameter, gradient in zip(momentum, model.parameters(), means(gradients), strict=True):
                m.mul_(0.9).add_(gradient + 2 * TRAINING.weight_decay * parameter)
                parameter.sub_(0.05 * m)
            for buffer, mean in zip(model.buffers(), means(buffers), strict=True):
                buffer.copy_(mean)
            d = ema_decay_after(0.9, step)
            average = {name: d * average[name] + (1 - d) * tensor for name, tensor in model.state_dict().items()}
    progress: list[int] = []
    weights, player, results, rows, locked = run_data_parallel(
        learn, (), PAIR, lambda done, total: progress.append(done)
    )
    assert progress == [1, 2, 3]
    assert [result.value_loss for result in results] == pytest.approx(value_losses, rel=1e-4)
    assert [result.value_gradient_norm for result in results] == pytest.approx(value_norms, rel=1e-3)
    assert rows == [[0, 1, 2], [3, 4, 5]], "in order, and for other types too"
    assert locked == 1.0, "all processes hold the lock of the GPU that they share"
    with lock_gpus(["0"]):
        pass  # it is free again
    for data, tensors in ((weights, model.state_dict()), (player, average)):
        for name, tensor in load_network(data).state_dict().items():
            torch.testing.assert_close(tensor, tensors[name], rtol=1e-4, atol=1e-5)


def test_the_death_of_a_process_ends_the_others_and_is_reported():
    with pytest.raises(WorkerError, match=r"training process 0 of 2 \(pid \d+\) was killed by signal 9; run the"):
        run_data_parallel(fail, (0, True), PAIR)
    assert not alive_children()


def test_an_error_of_one_process_is_raised_in_the_parent():
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        run_data_parallel(fail, (1, False), PAIR)
    assert not alive_children()


def divide_by_zero(peers: Peers, progress: Progress) -> None:
    if peers.rank == 1:
        progress(1 // 0, 1)
    peers.average([torch.zeros(1)])


def test_an_unexpected_error_of_a_process_is_printed_there_and_named_in_the_parent(capfd: pytest.CaptureFixture[str]):
    message = r"training process 1 of 2 \(pid \d+\) ended with ZeroDivisionError; its own message is above"
    with pytest.raises(WorkerError, match=message):
        run_data_parallel(divide_by_zero, (), PAIR)
    assert "in divide_by_zero" in capfd.readouterr().err
    assert not alive_children()


PARENT = """
from tests.network.test_data_parallel import PAIR, wait_forever
from zero.network.data_parallel import run_data_parallel
if __name__ == "__main__":
    run_data_parallel(wait_forever, (), PAIR, lambda done, total: print(done, flush=True))
"""


def test_the_processes_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are two GPUs")
def test_more_processes_than_gpus_are_rejected():
    with pytest.raises(ParamsError, match=r"training_processes = 2, but torch finds \d CUDA devices"):
        run_data_parallel(learn, (), PAIR.model_copy(update={"device": "cuda"}))


def alive_children() -> list[psutil.Process]:
    children = psutil.Process().children()
    living = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]  # of other tests
    return [child for child in living if "spawn_main" in " ".join(child.cmdline())]

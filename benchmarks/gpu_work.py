"""What `python -m benchmarks.gpu` computes in child processes, on the device of the parameters' profile."""

import resource
import tempfile
import time
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Work, rate
from benchmarks.results import markdown
from benchmarks.selfplay import new_network_evaluator
from benchmarks.training import learner
from zero.config.params import Params
from zero.games.planes import pack_planes
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.play.batched_games import batch_shape
from zero.search.evaluator import Evaluator

MEBIBYTE, KIBIBYTES = 2**20, 2**10
PRODUCTS = 10
"""Matrix products between two waits for the device."""
ROUNDS = 20
"""Batches of each shape in the search for a memory leak, and batches of a profile."""
PROFILE_ROWS = 12


class Memory(NamedTuple):
    """Peak memory of a process on the device, MiB; on the CPU its resident memory."""

    first: float  # after one batch of each shape of a shard
    later: float  # after `ROUNDS` more of each
    training: float  # after a step of training in the same process


class Profile(NamedTuple):
    """Where the time of a batch goes."""

    calls: float  # kernels and copies per batch
    busy: float  # share of the wall-clock time in which one ran
    table: str  # those with the largest sums, in Markdown


def matmul(params: Params, size: int) -> Work:
    """TFLOP/s of the product of two square matrices of random numbers: the highest rate to expect of the device."""
    prepare_torch(params.profile, params.profile.selfplay_threads)
    import torch

    from zero.network.torch_backend import DTYPES

    dtype, device = DTYPES[params.profile.precision], params.profile.device
    one, other, product = (torch.randn(size, size, device=device).to(dtype) for _ in range(3))

    def step() -> int:
        for _ in range(PRODUCTS):
            torch.mm(one, other, out=product)
        float(product[0, 0])  # waits for the device
        return PRODUCTS

    step()
    return lambda seconds: rate(step, seconds) * 2.0 * size**3 / 1e12


def network_flops(params: Params) -> int:
    """Floating-point operations of the network for one position: two per multiplication, of all layers with weights.

    Convolutions keep the board's size, so each of their weights is used once per point.
    """
    from zero.network.weights import new_network

    network = new_network(params.network, params.game, params.seed)
    points = network.spec.rows * network.spec.columns
    weights = [weight for weight in network.parameters() if weight.dim() > 1]
    return sum(2 * weight.numel() * (points if weight.dim() == 4 else 1) for weight in weights)


def shard_digest(params: Params, number: int) -> str:
    """SHA-256 of a shard of the first generation, which is played as a worker plays it."""
    prepare_torch(params.profile, params.profile.selfplay_threads)
    from zero.network.weights import new_network, weights_bytes
    from zero.stages.spec import plan_shards
    from zero.stages.worker import play_into_store
    from zero.storage.store import Store

    with tempfile.TemporaryDirectory(prefix="zero-gpu-") as folder:
        store = Store(folder)
        weights = store.put_weights(weights_bytes(new_network(params.network, params.game, params.seed)))
        return play_into_store(plan_shards(params, "selfplay", 1, (weights,))[number], store).sha256


def memory(params: Params) -> Memory:
    """Peak memory of play and then of training."""
    evaluator, slots = new_network_evaluator(params), params.selfplay.num_slots
    planes = random_positions(params, slots)
    sizes = sorted({batch_shape(requests, slots) for requests in range(1, slots + 1)}, reverse=True)
    evaluate(evaluator, planes, sizes)
    first = _peak_memory(params)
    evaluate(evaluator, planes, sizes * ROUNDS)
    later = _peak_memory(params)
    learner(params)(0.0)
    return Memory(first, later, _peak_memory(params))


def profile(params: Params) -> Profile:
    """Profile of batches of the size of a shard's half, one after the other."""
    evaluator = new_network_evaluator(params)
    size = params.selfplay.num_slots // (2 if params.profile.half_batches else 1)
    planes = random_positions(params, size)
    evaluate(evaluator, planes, [size])
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    on_gpu = params.profile.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profiled(activities=activities) as found:
        begun = time.perf_counter()
        evaluate(evaluator, planes, [size] * ROUNDS)
        microseconds = 1e6 * (time.perf_counter() - begun)
    # The other entries are PyTorch's functions, to which a GPU's time would be added a second time.
    events = [each for each in found.key_averages() if (each.device_type.name == "CUDA") is on_gpu]
    spent = {each.key: each.self_device_time_total if on_gpu else each.self_cpu_time_total for each in events}
    events.sort(key=lambda each: -spent[each.key])
    rows = [(f"`{e.key[:90]}`", str(e.count), f"{spent[e.key]:,.0f}") for e in events[:PROFILE_ROWS]]
    return Profile(
        calls=sum(each.count for each in events) / ROUNDS,
        busy=sum(spent.values()) / microseconds,
        table=markdown(("kernel or copy", "calls", "µs"), rows),
    )


def random_positions(params: Params, size: int) -> np.ndarray:
    """Planes [B, P, W] of positions with random stones."""
    stones = np.random.default_rng(0).integers(0, 2, (size, NUM_PLANES, rules_of(params.game).num_points))
    return pack_planes(stones.astype(np.float32))


def evaluate(evaluator: Evaluator, planes: np.ndarray, sizes: list[int]) -> None:
    """Evaluates a batch of each size."""
    num_actions: int = evaluator.spec.num_actions  # type: ignore[attr-defined]
    prior, value = np.zeros((len(planes), num_actions), np.float32), np.zeros(len(planes), np.float32)
    for size in sizes:
        evaluator.evaluate(planes[:size], prior[:size], value[:size])


def _peak_memory(params: Params) -> float:
    if params.profile.device == "cuda":
        import torch

        return torch.cuda.max_memory_reserved() / MEBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIBIBYTES

"""The inference backends: each agrees with the network, and gives the same bits every time."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.network.networks import (
    ARCHITECTURES,
    CPU,
    GO5,
    GOMOKU5,
    NUM_ACTIONS,
    TINY,
    as_images,
    needs_cuda,
    random_planes,
    randomized_network,
)
from tests.parameters import network_params, profile_params
from zero.config.params import GameParams, GoParams, NetworkParams, ProfileParams
from zero.errors import ParamsError, StorageError
from zero.evaluation.held_out import gnugo_positions
from zero.games.planes import expand_planes, pack_planes
from zero.network.cuda_backend import FUSED_CHANNELS, forward_bits, fuse
from zero.network.inference import NetworkEvaluator, new_evaluator
from zero.network.model import channels_last, fold
from zero.network.openvino_backend import import_openvino, new_ownership_graph
from zero.network.planes import expand_bits, plane_bytes
from zero.network.spec import MAX_BATCH
from zero.network.weight_files import parse_weights
from zero.network.weights import weights_bytes
from zero.players.networks import SHIPPED_DIR
from zero.search.evaluator import AsyncEvaluator
from zero.storage.layout import WEIGHTS_FILE

DATA = weights_bytes(randomized_network())
OPENVINO = profile_params(backend="openvino")
GPU = profile_params(device="cuda")
PROFILES = {
    "torch": CPU,
    "torch-bf16": CPU.model_copy(update={"precision": "bf16"}),
    "openvino": OPENVINO,
    "openvino-bf16": OPENVINO.model_copy(update={"precision": "bf16"}),
    "openvino-2-threads": OPENVINO.model_copy(update={"selfplay_threads": 2}),
}
HAS_AVX512 = "avx512f" in Path("/proc/cpuinfo").read_text()
"""OpenVINO computes in bf16 only with AVX-512."""
needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="OpenVINO needs AVX-512 for bf16")
SUPPORTED = [name for name in PROFILES if HAS_AVX512 or name != "openvino-bf16"]
BACKENDS = [
    *(
        pytest.param(profile, id=name, marks=[needs_avx512] if name == "openvino-bf16" else [])
        for name, profile in PROFILES.items()
    ),
    pytest.param(GPU, id="cuda", marks=needs_cuda),
    pytest.param(GPU.model_copy(update={"precision": "bf16"}), id="cuda-bf16", marks=needs_cuda),
]
TOLERANCES = {"fp32": 1e-4, "bf16": 0.1}
"""Largest error of a value or a prior, compared with PyTorch in fp32."""
DIVERGENCES = {"fp32": 1e-6, "bf16": 2e-3}
"""Largest mean KL divergence of a trained network's priors from PyTorch's in fp32, nats. On a CPU it is 1e-8 (OpenVINO)
and 1.2e-4 (PyTorch in bf16); that of uniform priors is 2.4."""
VALUE_ERRORS = {"fp32": 1e-4, "bf16": 0.02}
"""Largest mean error of its values; on a CPU it is 1.4e-7 and 0.0045."""
POOLED_HEADS = network_params(num_blocks=2, num_channels=9, global_pooling=True, pooled_heads=True)
FUSED = {"num_blocks": 2, "num_channels": FUSED_CHANNELS, "value_hidden": 32}
NETWORKS: dict[str, tuple[NetworkParams, GameParams]] = {
    "residual": (TINY, GO5),
    "plain": (network_params(num_blocks=2, tower="plain"), GO5),
    "shallow": (network_params(num_blocks=3, tower="shallow"), GO5),
    "separate": (network_params(num_blocks=2, heads="separate"), GO5),
    "pooled": (network_params(num_blocks=2, num_channels=9, global_pooling=True), GO5),
    "pooled plain": (network_params(num_blocks=1, tower="plain", global_pooling=True), GO5),
    "pooled heads": (POOLED_HEADS, GO5),
    "pooled heads without a pass": (POOLED_HEADS, GOMOKU5),
    "training heads": (network_params(ownership_head=True, score_head=True), GO5),
    "fused on a GPU in bf16": (network_params(**FUSED), GO5),
    "pooled, fused on a GPU in bf16": (network_params(**FUSED, global_pooling=True), GO5),
}
CHILD = """
import json, sys
from tests.parameters import profile_params
from zero.network.profile import prepare_inference, set_environment
set_environment(profile_params(isa=sys.argv[1]))  # before anything computes
from tests.network.test_inference import PROFILES, result_digest
digests = {}
for name in sys.argv[2:]:
    profile = PROFILES[name].model_copy(update={"isa": sys.argv[1]})
    prepare_inference(profile)
    digests[name] = result_digest(profile)
print(json.dumps(digests))
"""
BUSY = "import time\nprint('busy', flush=True)\nwhile True: time.time()"


def evaluate(evaluator: NetworkEvaluator, planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return evaluate_packed(evaluator, pack_planes(planes))


def evaluate_packed(evaluator: NetworkEvaluator, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    prior = np.full((len(bits), evaluator.spec.num_actions), np.nan, np.float32)
    value = np.full(len(bits), np.nan, np.float32)
    evaluator.evaluate(bits, prior, value)
    return prior, value


def expected_output(
    planes: np.ndarray, network: NetworkParams = TINY, game: GameParams = GO5
) -> tuple[np.ndarray, np.ndarray]:
    """Output of the network itself, not folded."""
    with torch.no_grad():
        logits, values = randomized_network(network, game=game)(as_images(planes))
    return torch.softmax(logits, 1).numpy(), values.numpy()


def result_digest(profile: ProfileParams) -> str:
    """SHA-256 of the results for a batch and then for a smaller one."""
    evaluator = new_evaluator(DATA, profile)
    results = [array for size in (64, 8) for array in evaluate(evaluator, random_planes(size))]
    return hashlib.sha256(b"".join(array.tobytes() for array in results)).hexdigest()


def child_digests(isa: str, *names: str) -> dict[str, str]:
    """The same digests from a new process, by profile."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, isa, *names], capture_output=True, check=True, timeout=600, text=True
    )
    return dict(json.loads(child.stdout))


@pytest.mark.parametrize(("network", "game"), NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("profile", BACKENDS)
def test_priors_and_values_are_those_of_the_network(profile, network, game):
    planes = random_planes(8)
    prior, value = evaluate(new_evaluator(weights_bytes(randomized_network(network, game=game)), profile), planes)
    expected_prior, expected_value = expected_output(planes, network, game)
    tolerance = TOLERANCES[profile.precision]
    np.testing.assert_allclose(prior, expected_prior, atol=tolerance)
    np.testing.assert_allclose(value, expected_value, atol=tolerance)
    np.testing.assert_allclose(prior.sum(1), 1.0, atol=1e-5)


@pytest.mark.parametrize("profile", [backend for backend in BACKENDS if backend.id != "torch"])
def test_a_trained_network_predicts_the_moves_that_pytorch_predicts_in_fp32(profile):
    # The tolerances above are wider than the differences between two moves of a network that knows the game.
    positions = gnugo_positions(GoParams(name="go", size=9, komi=7.0))
    weights = (SHIPPED_DIR / "go9" / WEIGHTS_FILE).read_bytes()
    (expected, expected_value), (found, value) = (
        evaluate_packed(new_evaluator(weights, each), positions.planes[:256]) for each in (CPU, profile)
    )
    divergence = np.sum(expected * np.log(expected / found), axis=1).mean()
    assert divergence < DIVERGENCES[profile.precision]
    assert np.abs(value - expected_value).mean() < VALUE_ERRORS[profile.precision]


@pytest.mark.parametrize("profile", BACKENDS)
def test_a_row_depends_on_its_own_planes_only(profile):
    planes = random_planes(8)
    evaluator = new_evaluator(DATA, profile)
    prior, value = evaluate(evaluator, planes)
    changed = random_planes(8, seed=1)
    changed[3] = planes[3]
    other_prior, other_value = evaluate(evaluator, changed)
    assert np.array_equal(other_prior[3], prior[3]) and other_value[3] == value[3]
    assert not np.isclose(np.delete(other_value, 3), np.delete(value, 3)).any()


@pytest.mark.parametrize("profile", BACKENDS)
def test_a_smaller_batch_does_not_depend_on_the_previous_one(profile):
    planes = random_planes(8, seed=1)
    fresh = evaluate(new_evaluator(DATA, profile), planes[:4])
    used = new_evaluator(DATA, profile)
    evaluate(used, random_planes(16, seed=2))
    again = evaluate(used, planes[:4])
    assert np.array_equal(fresh[0], again[0]) and np.array_equal(fresh[1], again[1])


@pytest.mark.parametrize("profile", BACKENDS)
def test_two_evaluators_give_the_same_bits(profile):
    assert result_digest(profile) == result_digest(profile)


@pytest.mark.parametrize("batch_size", [pytest.param(size, marks=needs_cuda) for size in (8, 256)])
def test_two_evaluators_with_fused_blocks_give_the_same_bits(batch_size):
    data = weights_bytes(randomized_network(network_params(num_blocks=2, num_channels=64)))
    profile = GPU.model_copy(update={"precision": "bf16"})
    planes = random_planes(batch_size)
    first, second = (evaluate(new_evaluator(data, profile), planes) for _ in range(2))
    assert np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])


@pytest.fixture(scope="module")
def native_digests() -> dict[str, str]:
    """Digests of the results of a new process, by profile."""
    return child_digests("native", *SUPPORTED)


def test_new_processes_give_the_same_bits_alone_and_beside_a_busy_one(native_digests):
    busy = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None and busy.stdout.readline() == b"busy\n"
        assert child_digests("native", *SUPPORTED) == native_digests
    finally:
        busy.kill()
        busy.communicate()
    assert len(set(native_digests.values())) >= 3  # PyTorch, bf16, and on some machines OpenVINO and its threads


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="the CPU has no AVX-512")
def test_avx2_gives_other_bits(native_digests):
    digests = child_digests("avx2", "torch", "openvino")
    assert all(digests[name] != native_digests[name] for name in digests)


@pytest.mark.parametrize("name", ["torch", pytest.param("openvino", marks=needs_avx512)])
def test_bf16_is_close_to_fp32_but_not_equal(name):
    planes = random_planes(8)
    _, value = evaluate(new_evaluator(DATA, PROFILES[name]), planes)
    _, low_value = evaluate(new_evaluator(DATA, PROFILES[f"{name}-bf16"]), planes)
    assert 0.0 < np.abs(low_value - value).max() < TOLERANCES["bf16"]


@pytest.mark.parametrize("name", [name for name, network in ARCHITECTURES.items() if network.ownership_head])
def test_openvino_predicts_the_ownership_of_the_network(name):
    network, planes = randomized_network(ARCHITECTURES[name]), random_planes(1)
    graph = new_ownership_graph(*parse_weights(weights_bytes(network)))
    compiled = import_openvino().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    with torch.no_grad():
        expected = network.predict(as_images(planes)).ownership
    assert expected is not None
    np.testing.assert_allclose(compiled([planes.transpose(0, 2, 1)])[0], expected.numpy(), atol=TOLERANCES["fp32"])


def test_openvino_is_loaded_without_its_telemetry():
    child = "import sys, zero.network.openvino_backend as backend; backend.import_openvino(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", child], capture_output=True, check=True, timeout=600, text=True)
    modules = loaded.stdout.split()
    assert "openvino" in modules
    assert not [name for name in modules if name.startswith("openvino_telemetry.")]


@pytest.mark.parametrize("profile", BACKENDS)
def test_corrupt_weights_are_rejected(profile):
    with pytest.raises(StorageError):
        new_evaluator(DATA[:-4], profile)


@pytest.mark.parametrize("profile", BACKENDS)
def test_positions_of_another_board_and_batches_out_of_range_are_rejected(profile):
    evaluator = new_evaluator(DATA, profile)
    for num_words, num_actions in ((2, 82), (1, 37)):
        planes, value = np.zeros((4, 17, num_words), np.uint64), np.zeros(4, np.float32)
        with pytest.raises(ParamsError, match=rf"5x5 boards .* {num_actions} actions; use weights of this game"):
            evaluator.evaluate(planes, np.zeros((4, num_actions), np.float32), value)
    for size in (0, MAX_BATCH + 1):
        planes, value = np.zeros((size, 17, 1), np.uint64), np.zeros(size, np.float32)
        with pytest.raises(ParamsError, match=f"a batch must have 1 to {MAX_BATCH} positions, got {size}"):
            evaluator.evaluate(planes, np.zeros((size, NUM_ACTIONS), np.float32), value)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_bits_are_expanded_by_torch_as_by_the_kernel(size):
    network = randomized_network()
    bits = pack_planes(random_planes(size, seed=4))
    expected = np.zeros((size, 25, 17), np.float32)
    expand_planes(bits, expected)
    x = expand_bits(torch.from_numpy(plane_bytes(bits)), network.spec, torch.float32)
    assert np.array_equal(x.permute(0, 2, 3, 1).reshape(size, 25, 17).numpy(), expected)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_every_point_of_a_large_board_has_its_bit():
    spec = randomized_network().spec.model_copy(update={"rows": 19, "columns": 19})
    planes = np.zeros((361, 17, 361), np.float32)
    planes[range(361), np.arange(361) % 17, range(361)] = 1.0
    x = expand_bits(torch.from_numpy(plane_bytes(pack_planes(planes))), spec, torch.float32)
    assert np.array_equal(x.reshape(361, 17, 361).numpy(), planes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forward_bits_agrees_with_the_network(dtype):
    planes = random_planes(8)
    network = channels_last(randomized_network().to(dtype))
    with torch.no_grad():
        prior, value = forward_bits(network, torch.from_numpy(plane_bytes(pack_planes(planes))), dtype)
    tolerance = 1e-4 if dtype == torch.float32 else TOLERANCES["bf16"]
    for found, expected in zip((prior, value), expected_output(planes), strict=True):
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_fused_network_equals_the_folded_one(name, monkeypatch):
    def on_cpu(x, weight, z, alpha, *rest):
        return functional.relu(functional.conv2d(x, weight, *rest) + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", on_cpu)
    folded, fused = (fold(randomized_network(ARCHITECTURES[name])) for _ in range(2))
    fuse(fused)
    with torch.no_grad():
        found, expected = (network(as_images(random_planes(8))) for network in (fused, folded))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported():
    with pytest.raises(ParamsError, match=r"profile\.device = 'cuda'"):
        new_evaluator(DATA, GPU)


@needs_cuda
def test_a_gpu_evaluates_while_the_host_does_something_else():
    evaluator = new_evaluator(DATA, GPU)
    assert isinstance(evaluator, AsyncEvaluator)
    planes = random_planes(8)
    expected = evaluate(evaluator, planes)
    prior, value, bits = np.zeros((8, NUM_ACTIONS), np.float32), np.zeros(8, np.float32), pack_planes(planes)
    evaluator.submit(bits, prior, value)
    bits[:] = 0
    evaluator.wait()
    assert np.array_equal(prior, expected[0]) and np.array_equal(value, expected[1])


@needs_cuda
@pytest.mark.parametrize("sizes", [(8, 8, 8, 8), (8, 4, 8, 8, 4)])
def test_a_gpu_takes_a_second_batch_before_the_first_is_fetched(sizes):
    evaluator = new_evaluator(DATA, GPU)
    assert isinstance(evaluator, AsyncEvaluator)
    planes = [random_planes(size, seed=number) for number, size in enumerate(sizes)]
    expected = [evaluate(evaluator, each) for each in planes]
    found = [(np.zeros((size, NUM_ACTIONS), np.float32), np.zeros(size, np.float32)) for size in sizes]
    for number, outputs in enumerate(found):
        evaluator.submit(pack_planes(planes[number]), *outputs)
        if number:
            evaluator.wait()
    evaluator.wait()
    for outputs, right in zip(found, expected, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(outputs, right, strict=True))


@needs_cuda
def test_a_gpu_out_of_memory_is_reported():
    evaluator = new_evaluator(weights_bytes(randomized_network(network_params(num_channels=1024))), GPU)
    planes = random_planes(1)
    evaluate(evaluator, planes)
    _, total = torch.cuda.mem_get_info()
    # The limit counts what this process has reserved, not the memory of other processes or the context.
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**28) / total)
    try:
        with pytest.raises(ParamsError, match=r"too small for a batch of 65536 .*; lower num_slots"):
            evaluate(evaluator, np.repeat(planes, MAX_BATCH, axis=0))
        evaluate(evaluator, planes)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

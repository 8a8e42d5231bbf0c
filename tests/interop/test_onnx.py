"""The ONNX model in OpenVINO gives the outputs of the network in PyTorch."""

import logging
import warnings

import numpy as np
import onnx
import openvino
import pytest
import torch

from tests.interop.networks import GO9, GOMOKU8, random_images, trained
from tests.parameters import network_params
from zero.config.params import GameParams, NetworkParams
from zero.interop.onnx import onnx_model
from zero.network.spec import NetworkSpec
from zero.network.weight_files import METADATA_KEY
from zero.network.weights import load_network, weights_bytes

TOLERANCE = 1e-4
SMALL = network_params(num_blocks=2, num_channels=16, value_hidden=32)
POOLED = SMALL.model_copy(update={"global_pooling": True, "pooled_heads": True})
NETWORKS: dict[str, tuple[NetworkParams, GameParams]] = {
    "Go 9x9": (SMALL, GO9),
    "Gomoku 8x8": (SMALL, GOMOKU8),
    "separate plain towers": (SMALL.model_copy(update={"tower": "plain", "heads": "separate"}), GO9),
    "two convolutions": (SMALL.model_copy(update={"tower": "shallow"}), GOMOKU8),
    "pooled Go 9x9": (POOLED, GO9),
    "pooled Gomoku 8x8": (POOLED, GOMOKU8),
}


def run(model: bytes, images: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs by name, in float32 (by default OpenVINO uses bfloat16 if the CPU supports it)."""
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled({"planes": images})
    return {output.any_name: results[output] for output in compiled.outputs}


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx_model(trained(*NETWORKS["Go 9x9"]))


@pytest.mark.parametrize(("params", "game"), NETWORKS.values(), ids=NETWORKS.keys())
def test_openvino_agrees_with_pytorch(params, game):
    network = trained(params, game)
    exported = onnx_model(network)
    for batch_size in (1, 2, 5):
        images = random_images(network, batch_size)
        with torch.no_grad():
            logits, value = network(images)[:2]
        found = run(exported, images.numpy())
        np.testing.assert_allclose(found["policy"], torch.softmax(logits, 1).numpy(), rtol=TOLERANCE, atol=1e-7)
        np.testing.assert_allclose(found["value"], value.numpy(), atol=TOLERANCE)
        assert found["policy"].max() > 0.03 and abs(found["value"]).min() > 0.01, "too uniform for a comparison"


def test_the_model_is_valid(model):
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)


def test_shapes_depend_on_the_board_and_the_batch_is_dynamic(model):
    graph = onnx.load_from_string(model).graph
    shapes = {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes == {"planes": ["batch", 17, 9, 9], "policy": ["batch", 82], "value": ["batch"]}


def test_the_metadata_contains_the_network_spec(model):
    notes = {note.key: note.value for note in onnx.load_from_string(model).metadata_props}
    spec = NetworkSpec.model_validate_json(notes[METADATA_KEY])
    assert (spec.network, spec.rows, spec.num_actions) == (SMALL, 9, 82)


def test_the_model_contains_no_local_paths(model):
    assert b"site-packages" not in model and b"tower.py" not in model


def test_equal_networks_give_equal_bytes(model):
    network = trained(*NETWORKS["Go 9x9"])
    assert onnx_model(load_network(weights_bytes(network))) == model


def test_the_exporter_is_silent_and_restores_settings(capfd, caplog):
    network = trained(*NETWORKS["Gomoku 8x8"])
    filters, level = list(warnings.filters), logging.getLogger("onnxscript").level
    with caplog.at_level(logging.INFO):
        onnx_model(network)
    assert caplog.records == [] and capfd.readouterr() == ("", "")
    assert list(warnings.filters) == filters and logging.getLogger("onnxscript").level == level

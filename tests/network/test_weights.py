"""Weight files: equal weights give equal bytes, and corrupt files are rejected."""

import hashlib
import json

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.network.networks import ARCHITECTURES, GO5, NUM_ACTIONS, TINY, as_images, random_planes, randomized_network
from tests.parameters import profile_params
from zero.errors import StorageError
from zero.network.inference import new_evaluator
from zero.network.model import channels_last
from zero.network.weight_files import METADATA_KEY, parse_tensors, tensors_bytes
from zero.network.weights import load_network, new_network, weights_bytes

OPENVINO = profile_params(backend="openvino")
BIAS = "value_head.output.bias"


def header_of(data):
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def test_initial_weights_depend_only_on_the_seed():
    torch.manual_seed(1)
    one = weights_bytes(new_network(TINY, GO5, 5))
    torch.manual_seed(2)
    assert weights_bytes(new_network(TINY, GO5, 5)) == one
    assert weights_bytes(new_network(TINY, GO5, 6)) != one


FIRST_WEIGHTS = {
    "residual joint": "45f87035ef888b580c8434d0bd405b9dd87a7a454630cc03d8080e11bd5c21d5",
    "residual separate": "e641a27e12451694f66a29a629fbc1c66c7b33f32d100ee491af2e08852d4f5b",
    "plain joint": "45f87035ef888b580c8434d0bd405b9dd87a7a454630cc03d8080e11bd5c21d5",
    "plain separate": "e641a27e12451694f66a29a629fbc1c66c7b33f32d100ee491af2e08852d4f5b",
    "shallow joint": "044c2124bc0851a46079dda309c8d113d0c6c709300ddf94ed76fb827ecce12d",
    "shallow separate": "e1199b0ba96774c4114e86871472bc4c44fd79905cacc1cbe853d9234a948770",
}
"""SHA-256 of names, shapes and numbers, from the version that had only the paper's networks."""


@pytest.mark.parametrize("name", FIRST_WEIGHTS)
def test_initial_weights_of_the_paper_networks_do_not_change(name):
    digest = hashlib.sha256()
    for key, tensor in new_network(ARCHITECTURES[name], GO5, 5).state_dict().items():
        digest.update(key.encode() + b"\0" + str(tuple(tensor.shape)).encode() + tensor.numpy().tobytes())
    assert digest.hexdigest() == FIRST_WEIGHTS[name]


@pytest.mark.parametrize("field", ["global_pooling", "ownership_head", "score_head"])
def test_extensions_add_tensors_and_rename_none(field):
    network = TINY.model_copy(update={field: True})
    plain, larger = (set(new_network(n, GO5, 5).state_dict()) for n in (TINY, network))
    added = {
        "global_pooling": {"tower.2.pool.weight"},
        "ownership_head": {"ownership_head.output.weight", "ownership_head.output.bias"},
        "score_head": {f"score_head.{layer}.{part}" for layer in ("hidden", "output") for part in ("weight", "bias")},
    }
    assert larger - plain == added[field] and plain <= larger


def test_auxiliary_heads_do_not_change_the_other_initial_weights():
    plain = new_network(TINY, GO5, 5).state_dict()
    larger = new_network(TINY.model_copy(update={"ownership_head": True, "score_head": True}), GO5, 5).state_dict()
    assert all(torch.equal(tensor, larger[name]) for name, tensor in plain.items())


def test_making_and_loading_a_network_does_not_use_the_global_generator():
    before = torch.get_rng_state()
    load_network(weights_bytes(new_network(TINY, GO5, 5)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("pooled_heads", "least"), [(False, 1.05), (True, 1.02)])
def test_generation_0_has_nearly_even_priors_and_values_near_0(pooled_heads, least):
    model = new_network(TINY.model_copy(update={"pooled_heads": pooled_heads}), GO5, 5)
    with torch.no_grad():
        logits, values = model(as_images(random_planes(32)))
    priors = torch.softmax(logits, 1)
    assert 0 < float(values.abs().max()) < 0.5
    assert float(priors.min()) > 0.3 / NUM_ACTIONS
    assert least / NUM_ACTIONS < float(priors.max()) < 2.0 / NUM_ACTIONS


def test_a_deep_generation_0_has_nearly_even_priors_and_values_near_0_if_its_blocks_begin_as_the_identity():
    deep = TINY.model_copy(update={"num_blocks": 40})
    with torch.no_grad():
        plain, zero = (
            new_network(deep.model_copy(update={"zero_init_residual": on}), GO5, 5)(as_images(random_planes(32)))
            for on in (False, True)
        )
    assert float(torch.softmax(plain[0], 1).max()) > 0.9 and float(plain[1].abs().max()) > 0.9
    assert float(torch.softmax(zero[0], 1).max()) < 2.0 / NUM_ACTIONS and float(zero[1].abs().max()) < 0.5


def changed_weights(network, name):
    """Weights of generation 0 with and without a parameter of the network, and the keys of those that differ."""
    on, off = (new_network(network.model_copy(update={name: value}), GO5, 5).state_dict() for value in (True, False))
    return on, off, {key for key in off if not torch.equal(on[key], off[key])}


def test_outputs_near_zero_are_a_tenth_of_the_others_and_no_other_weight_changes():
    for network in ARCHITECTURES.values():
        near, usual, changed = changed_weights(network, "near_zero_outputs")
        assert changed == {key for key in usual if key.endswith(("output.weight", "passing.weight"))} != set()
        assert all(torch.allclose(near[key], usual[key] / 10) for key in changed)


def test_only_the_ends_of_residual_blocks_begin_at_zero():
    for network in ARCHITECTURES.values():
        zero, plain, changed = changed_weights(network, "zero_init_residual")
        ends = {key for key in plain if key.endswith("second.norm.weight")}
        assert changed == (ends if network.tower == "residual" else set())
        assert all(not zero[key].any() for key in changed)


@pytest.mark.parametrize("network", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_a_loaded_network_saves_the_same_bytes(network):
    data = weights_bytes(randomized_network(network))
    assert weights_bytes(load_network(data)) == data


def test_the_memory_layout_does_not_change_the_file():
    model = randomized_network()
    data = weights_bytes(model)
    assert weights_bytes(channels_last(model)) == data


def test_the_file_has_one_metadata_key():
    metadata = header_of(weights_bytes(randomized_network()))["__metadata__"]
    assert list(metadata) == [METADATA_KEY]
    assert json.loads(metadata[METADATA_KEY])["num_actions"] == NUM_ACTIONS


def test_running_statistics_are_weights():
    model = randomized_network().train()
    model(as_images(random_planes(8)))
    name = "tower.0.first.norm.running_mean"
    loaded = load_network(weights_bytes(model)).state_dict()[name]
    assert torch.equal(loaded, model.state_dict()[name])
    assert not torch.equal(loaded, randomized_network().state_dict()[name])


def with_header(header: dict[str, object]) -> bytes:
    data = json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data


def with_spec(**changes: int) -> bytes:
    tensors, note = parse_tensors(weights_bytes(randomized_network()), "weight file")
    return tensors_bytes(tensors, json.dumps(json.loads(note) | changes))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (weights_bytes(randomized_network())[:-1], "weight file is corrupt"),
        (b"PK\x03\x04 a pickle inside a zip", "weight file is corrupt"),
        (safetensors.torch.save({"weight": torch.zeros(2)}), "no metadata key 'zero'"),
        (tensors_bytes({"weight": np.zeros(2)}, '{"network": 1}'), "has no valid network spec"),
        (with_header({"__metadata__": None}), "no metadata key 'zero'"),
        (with_spec(rows=-9), "has no valid network spec: Input should be greater than or equal to 1"),
        (with_spec(rows=1_000_000), "has no valid network spec: Input should be less than or equal to 19"),
        (with_spec(num_actions=10**9), "has no valid network spec: Input should be less than or equal to 362"),
    ],
    ids=[
        *("truncated", "another format", "another program", "without a spec", "metadata of no program"),
        *("a board of negative size", "a board that fills the memory", "actions that fill the memory"),
    ],
)
def test_a_wrong_file_is_rejected(data, message):
    with pytest.raises(StorageError, match=message):
        load_network(data)


def changed(name: str, tensor: np.ndarray | None) -> bytes:
    tensors, note = parse_tensors(weights_bytes(randomized_network()), "weight file")
    kept = {each: tensors[each] for each in tensors if each != name}
    return tensors_bytes(kept if tensor is None else kept | {name: tensor}, note)


@pytest.mark.parametrize("load", [load_network, lambda data: new_evaluator(data, OPENVINO)], ids=["torch", "openvino"])
@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        (BIAS, None, f"{BIAS} is missing from the weight file"),
        (BIAS, np.zeros(2, np.float32), r"is float32 \[2\], expected float32 \[1\]"),
        (BIAS, np.zeros(1, np.float16), r"is float16 \[1\], expected float32 \[1\]"),
        (BIAS, np.full(1, np.nan, np.float32), "contains NaN or infinite numbers"),
        ("extra", np.zeros(1, np.float32), "tensor extra does not belong in the weight file"),
    ],
)
def test_a_wrong_tensor_is_rejected(load, name, tensor, message):
    with pytest.raises(StorageError, match=message):
        load(changed(name, tensor))

"""Weight files: equal bytes for equal weights, and no broken file gets in."""

import json

import pytest
import safetensors.torch
import torch

from tests.network.networks import GO5, NUM_ACTIONS, TINY, as_images, lived_in_network, random_planes
from zero.errors import StorageError
from zero.network.tower import channels_last
from zero.network.weights import METADATA_KEY, load_network, new_network, parse_tensors, tensors_bytes, weights_bytes


def header_of(data):
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def test_first_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = weights_bytes(new_network(TINY, GO5, 5))
    torch.manual_seed(2)
    assert weights_bytes(new_network(TINY, GO5, 5)) == one
    assert weights_bytes(new_network(TINY, GO5, 6)) != one


def test_making_and_loading_a_network_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    load_network(weights_bytes(new_network(TINY, GO5, 5)))
    assert torch.equal(torch.get_rng_state(), before)


def test_generation_0_has_nearly_even_priors_and_values_near_0():
    model = new_network(TINY, GO5, 5)
    with torch.no_grad():
        logits, values = model(as_images(random_planes(32)))
    priors = torch.softmax(logits, 1)
    assert 0 < float(values.abs().max()) < 0.5
    assert 1.05 / NUM_ACTIONS < float(priors.max()) < 2.0 / NUM_ACTIONS


def test_a_loaded_network_saves_the_same_bytes():
    data = weights_bytes(lived_in_network())
    assert weights_bytes(load_network(data)) == data


def test_the_layout_in_memory_does_not_show_in_the_file():
    model = lived_in_network()
    data = weights_bytes(model)
    assert weights_bytes(channels_last(model)) == data


def test_the_file_has_one_metadata_key():
    metadata = header_of(weights_bytes(lived_in_network()))["__metadata__"]
    assert list(metadata) == [METADATA_KEY]
    assert json.loads(metadata[METADATA_KEY])["num_actions"] == NUM_ACTIONS


def test_running_statistics_are_weights():
    model = lived_in_network().train()
    model(as_images(random_planes(8)))
    name = "tower.0.first.norm.running_mean"
    loaded = load_network(weights_bytes(model)).state_dict()[name]
    assert torch.equal(loaded, model.state_dict()[name])
    assert not torch.equal(loaded, lived_in_network().state_dict()[name])


def test_a_file_cut_short_is_refused():
    with pytest.raises(StorageError, match="weight file is broken"):
        load_network(weights_bytes(lived_in_network())[:-1])


def test_a_file_of_another_format_is_refused():
    with pytest.raises(StorageError, match="weight file is broken"):
        load_network(b"PK\x03\x04 a pickle inside a zip")


def test_a_file_of_somebody_else_is_refused():
    with pytest.raises(StorageError, match="no metadata 'zero'"):
        load_network(safetensors.torch.save({"weight": torch.zeros(2)}))


def test_a_file_that_names_no_network_is_refused():
    with pytest.raises(StorageError, match="does not say what network"):
        load_network(tensors_bytes({"weight": torch.zeros(2)}, '{"network": 1}'))


def changed(name: str, tensor: torch.Tensor | None) -> bytes:
    tensors, note = parse_tensors(weights_bytes(lived_in_network()), "weight file")
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    return tensors_bytes(tensors, note)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, "value_head.output.bias is missing from the weight file"),
        (torch.zeros(2), r"is torch.float32 \[2\], expected torch.float32 \[1\]"),
        (torch.zeros(1, dtype=torch.float16), r"is torch.float16 \[1\], expected torch.float32 \[1\]"),
        (torch.tensor([float("nan")]), "not finite"),
    ],
)
def test_a_wrong_tensor_is_refused(tensor, message):
    with pytest.raises(StorageError, match=message):
        load_network(changed("value_head.output.bias", tensor))


def test_a_tensor_too_many_is_refused():
    with pytest.raises(StorageError, match="tensor extra does not belong into the weight file"):
        load_network(changed("extra", torch.zeros(1)))

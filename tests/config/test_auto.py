"""`auto` in a parameters file becomes the fastest value for a machine; the other text does not change."""

import pytest
import yaml

from tests.parameters import PLAIN, parsed, profile_params, smoke, with_value
from zero.config.auto import Machine, check_profile, device_of, explain, resolve_auto
from zero.config.params import (
    AUTO_FIELDS,
    PLAY_SECTIONS,
    STAGE_SECTIONS,
    load_params,
    parse_params,
    preset_text,
    presets,
)
from zero.errors import ParamsError

ZEN5 = Machine(cpu="znver5", bf16_unit="AVX512-BF16")
ZEN4 = Machine(cpu="znver4", bf16_unit="AVX512-BF16")
XEON_WITH_AMX = Machine(cpu="sapphirerapids", bf16_unit="AMX")
XEON_WITHOUT_AMX = Machine(cpu="cooperlake", bf16_unit="AVX512-BF16")
GPU = Machine(cpu="znver2", bf16_unit="", has_cuda=True, has_cuda_bf16=True)
OLD_GPU = Machine(cpu="znver5", bf16_unit="AVX512-BF16", has_cuda=True, has_cuda_bf16=False)
ALL_AUTO = {"device": "auto", "backend": "auto", "precision": "auto", "training_precision": "auto"}


def resolved(machine: Machine, **fields: str) -> tuple[str, str, str, str]:
    """Device, backend, precision and training precision of a file with `auto` in all four but `fields`."""
    tree = smoke()
    tree["profile"] |= ALL_AUTO | fields
    profile = parse_params(resolve_auto(yaml.safe_dump(tree), machine)).profile
    return profile.device, profile.backend, profile.precision, profile.training_precision


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (PLAIN, ("cpu", "openvino", "fp32", "fp32")),
        (ZEN4, ("cpu", "openvino", "bf16", "bf16")),
        (ZEN5, ("cpu", "openvino", "bf16", "bf16")),
        (XEON_WITH_AMX, ("cpu", "openvino", "bf16", "bf16")),
        (XEON_WITHOUT_AMX, ("cpu", "openvino", "fp32", "fp32")),
        (GPU, ("cuda", "torch", "bf16", "bf16")),
        (OLD_GPU, ("cuda", "torch", "fp32", "fp32")),
    ],
    ids=["plain", "zen4", "zen5", "amx", "avx512-bf16 without amx", "gpu", "gpu without bf16"],
)
def test_auto_becomes_what_the_machine_computes_fastest(machine, expected):
    assert resolved(machine) == expected


@pytest.mark.parametrize(
    ("machine", "fields", "expected"),
    [
        (ZEN5, {"precision": "fp32"}, ("cpu", "openvino", "fp32", "bf16")),
        (ZEN5, {"backend": "torch"}, ("cpu", "torch", "bf16", "bf16")),
        (ZEN5, {"isa": "avx2"}, ("cpu", "openvino", "fp32", "fp32")),
        (GPU, {"device": "cpu"}, ("cpu", "openvino", "fp32", "fp32")),
        (GPU, {"backend": "openvino"}, ("cpu", "openvino", "fp32", "fp32")),
        (OLD_GPU, {"device": "cpu"}, ("cpu", "openvino", "bf16", "bf16")),
    ],
    ids=str,
)
def test_what_is_written_stays_and_decides_the_rest(machine, fields, expected):
    assert resolved(machine, **fields) == expected


def test_a_preset_for_a_cpu_resolves_to_a_cpu_on_a_machine_with_a_gpu():
    assert parse_params(resolve_auto(preset_text("go9-laptop"), GPU)).profile.device == "cpu"


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("machine", [PLAIN, ZEN5, GPU])
def test_only_auto_is_replaced(name, machine):
    before, after = (yaml.safe_load(text) for text in (preset_text(name), resolve_auto(preset_text(name), machine)))
    for field, value in before.get("profile", {}).items():
        if value == "auto":
            before["profile"][field] = after["profile"][field]
    assert before == after
    parse_params(yaml.safe_dump(after))


@pytest.mark.parametrize(
    "text",
    [
        *("# precision: auto\nprofile:\n  precision: fp32\n", "profile:\n  isa: auto\nprofile: {}\n"),
        *("game: {name: auto}\n", "profile: [1", "profile: auto", "auto", ""),
    ],
)
def test_a_text_without_auto_or_that_is_not_valid_comes_back_as_it_is(text):
    assert resolve_auto(text, ZEN5) == text


def test_every_field_that_may_be_auto_is_one_that_a_stage_depends_on():
    assert {*AUTO_FIELDS} <= {*PLAY_SECTIONS, *STAGE_SECTIONS["training"]}


@pytest.mark.parametrize("name", AUTO_FIELDS)
def test_auto_in_a_workspace_is_refused_with_the_values_to_write(name, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(with_value(name, "auto")))
    remedy = rf"{name} = 'auto' is for `zero new`, which records the value it chose; write '\w+' or '\w+'$"
    with pytest.raises(ParamsError, match=remedy):
        load_params(tmp_path)


def test_auto_elsewhere_is_an_ordinary_slip():
    with pytest.raises(ParamsError, match=r"profile\.isa = 'auto': must be 'native' or 'avx2'"):
        parsed(with_value("profile.isa", "auto"))


@pytest.mark.parametrize(
    ("machine", "fields", "message"),
    [
        (ZEN5, {"device": "cuda"}, "here: profile.device = 'cuda', but torch finds no CUDA device; use a machine with"),
        (
            PLAIN,
            {"precision": "bf16"},
            "here: profile.precision = 'bf16', but this CPU (x86-64) has neither AMX nor AVX512-BF16; set it to 'fp32'",
        ),
        (PLAIN, {"training_precision": "bf16"}, "here: profile.training_precision = 'bf16', but this CPU (x86-64)"),
        (ZEN5, {"precision": "bf16", "isa": "avx2"}, "profile.precision = 'bf16', but profile.isa 'avx2' excludes"),
        (OLD_GPU, {"device": "cuda", "precision": "bf16"}, "profile.precision = 'bf16', but this GPU does not"),
    ],
    ids=str,
)
def test_what_the_machine_lacks_is_named_in_one_line(machine, fields, message):
    with pytest.raises(ParamsError) as caught:
        check_profile(profile_params(**fields), machine, "here")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("machine", "fields"),
    [
        (PLAIN, {}),
        (ZEN5, {"precision": "bf16", "training_precision": "bf16"}),
        (XEON_WITHOUT_AMX, {"precision": "bf16"}),  # slower, but not emulated
        (GPU, {"device": "cuda", "precision": "bf16", "training_precision": "bf16"}),
        (OLD_GPU, {"device": "cuda"}),
    ],
    ids=str,
)
def test_what_the_machine_has_is_accepted(machine, fields):
    check_profile(profile_params(**fields), machine, "here")


@pytest.mark.parametrize(
    ("machine", "fields", "line"),
    [
        (
            ZEN5,
            {"backend": "openvino", "precision": "bf16", "training_precision": "bf16"},
            "cpu, openvino, bf16 (AVX512-BF16 on znver5 computes bf16 faster than fp32)",
        ),
        (
            XEON_WITH_AMX,
            {"precision": "fp32", "training_precision": "bf16"},
            "cpu, torch, fp32 in play, bf16 in training (AMX on sapphirerapids computes bf16 4 times as fast as fp32)",
        ),
        (PLAIN, {}, "cpu, torch, fp32 (x86-64 has no instructions for bf16)"),
        (XEON_WITHOUT_AMX, {}, "cpu, torch, fp32 (AVX512-BF16 on cooperlake is not known to be faster than fp32)"),
        (GPU, {"device": "cuda", "precision": "bf16"}, "cuda, torch, bf16 in play, fp32 in training (the GPU computes"),
    ],
)
def test_one_line_says_what_was_chosen_and_why(machine, fields, line):
    assert explain(profile_params(**fields), machine).startswith(f"this machine: {line}")


@pytest.mark.parametrize(
    ("text", "device"),
    [("profile: {device: cpu}", "cpu"), ("profile: {device: auto}", "auto"), ("seed: 1", "cpu"), ("[", "cpu")],
)
def test_the_device_is_read_as_written(text, device):
    assert device_of(text) == device

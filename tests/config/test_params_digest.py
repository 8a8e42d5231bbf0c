"""Digests of parameters: a digest depends on the values of its own parameters, and not on the layout of the file."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.parameters import parsed, preset, smoke, with_value, with_values
from zero.config.params import STAGE_SECTIONS, Params, params_digest, parse_params, presets

DIGESTS = {
    "go13-gpu": "580bea02ce5708e8",
    "go19-gpu-small": "15eb6028b0d0d8cb",
    "go19-paper": "cfd93fbb1cf843e9",
    "go5": "64213a51226aa70f",
    "go9-gpu": "9b3263bc1c41e788",
    "go9-laptop": "1c20bde5df0bfd40",
    "go9-paper": "df1dca4a34dbc56e",
    "go9-simple": "65a0875ad79eccc2",
    "go9-supervised": "af937eb580c528d0",
    "gomoku8": "1d7c6bb3cd229a0e",
    "gomoku8-simple": "cf2d7e169f0d2bf1",
    "othello6": "05d1586509e38390",
    "smoke": "c553f28cca0df679",
}
"""First 16 digits of the digest of each preset. A changed default changes presets that do not mention it."""


def leaves(tree: Any, name: str = "") -> Iterator[str]:
    """Names of all parameters of a file; a list is one."""
    if not isinstance(tree, dict):
        yield name
        return
    for key, child in tree.items():
        yield from leaves(child, f"{name}.{key}" if name else key)


def changed(name: str) -> Params:
    """Valid parameters that differ from the smoke preset in one."""
    value: Any = smoke()
    for part in name.split("."):
        value = value[part]
    others = {"go": "gomoku", "residual": "plain", "joint": "separate", "sgd": "adam", "cpu": "cuda", "fp32": "bf16"}
    others |= {"native": "avx2", "local": "dask", "parent": "zero", "torch": "openvino", "puct": "gumbel"}
    others |= {"squared_error": "cross_entropy", "": "tls://host:8786"}
    if name == "game.name":
        return parsed(with_value("game", {"name": "gomoku", "size": 5, "in_a_row": 4}))
    if isinstance(value, bool):
        other: Any = not value
    elif isinstance(value, str):
        other = others[value]
    elif isinstance(value, list):
        other = value[:1]
    elif isinstance(value, int):
        other = value + (1 if name == "profile.training_processes" else 2)
    else:
        other = value + 0.5 if name.endswith("komi") else value * 0.5 + 0.1
    needed = {"selfplay.dirichlet_fraction": 0.0, "selfplay.temperature_moves": 0} if name == "search.root" else {}
    return parsed(with_values({name: other, **needed}))


@pytest.mark.parametrize("name", list(leaves(smoke())))
def test_a_digest_depends_on_its_own_parameters_only(name):
    before, after = parsed(smoke()), changed(name)
    assert before != after
    assert (params_digest(before) == params_digest(after)) == name.startswith("executor.")
    for stage, sections in STAGE_SECTIONS.items():
        depends = any(name == section or name.startswith(f"{section}.") for section in sections)
        assert (params_digest(before, stage) != params_digest(after, stage)) == depends, stage


def test_a_digest_does_not_depend_on_the_layout_of_the_file():
    tree = smoke()
    backwards = dict(reversed(tree.items()))
    backwards["selfplay"] = dict(reversed(tree["selfplay"].items()))
    text = "# another comment\n" + yaml.safe_dump(backwards, sort_keys=False, default_flow_style=True)
    assert params_digest(parse_params(text)) == params_digest(parsed(tree))


@pytest.mark.parametrize(
    ("section", "name", "dependent_stages"),
    [
        ("selfplay", "overlap", {None, "selfplay", "replay", "verification"}),
        ("network", "pooled_heads", {None, "training"}),
        ("search", "pass_wins", {None, "selfplay", "replay", "gating", "verification"}),
        ("training", "search_value_weight", {None, "training"}),
    ],
)
def test_a_file_older_than_a_parameter_has_the_digests_of_a_file_with_it_off(section, name, dependent_stages):
    field = type(getattr(parsed(smoke()), section)).model_fields[name]
    values = (field.default, type(field.default)(1))
    old, off, on = parsed(smoke()), *(parsed(with_value(f"{section}.{name}", value)) for value in values)
    assert old == off and name not in off.model_dump()[section]
    sees = {stage for stage in (None, *STAGE_SECTIONS) if params_digest(on, stage) != params_digest(off, stage)}
    assert sees == dependent_stages


def test_digests_of_stages_differ():
    params = parsed(smoke())
    assert len({params_digest(params, stage) for stage in (None, *STAGE_SECTIONS)}) == len(STAGE_SECTIONS) + 1


def test_every_preset_has_a_known_digest():
    assert {name: params_digest(preset(name))[:16] for name in presets()} == DIGESTS

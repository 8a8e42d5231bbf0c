"""Parameters: every preset is valid, and the message for a misspelt name suggests the right one."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

import zero
from tests.parameters import parsed, preset, smoke_text, with_value, with_values
from zero.config.params import (
    GAMES,
    PARAMS_FILE,
    ExecutorParams,
    GatingParams,
    LearningRateStep,
    NetworkParams,
    OthelloParams,
    Params,
    ProfileParams,
    ReplayParams,
    SearchParams,
    SelfplayParams,
    TrainingParams,
    VerificationParams,
    load_params,
    params_digest,
    params_text,
    parse_params,
    preset_text,
    presets,
)
from zero.errors import ParamsError

PROJECT_DIR = Path(zero.__file__).parents[1]
SECTIONS: list[type[BaseModel]] = [
    *GAMES.values(),
    *(NetworkParams, SearchParams, SelfplayParams, ReplayParams, LearningRateStep),
    *(TrainingParams, GatingParams, VerificationParams, ProfileParams, ExecutorParams),
]


def error_of(tree: Any) -> str:
    """The message of the error for an invalid file, always one line."""
    with pytest.raises(ParamsError) as caught:
        parsed(tree)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", presets())
def test_every_preset_validates(name):
    params = preset(name)
    assert params.selfplay.num_games % params.selfplay.games_per_shard == 0
    assert params.gating.num_games % params.gating.games_per_shard == 0


def test_the_default_is_the_laptop_preset():
    assert (PROJECT_DIR / PARAMS_FILE).read_text() == preset_text("go9-laptop")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_parameter_is_explained(section):
    assert section.__doc__
    explained = docstrings_of(section)
    for name in section.model_fields:
        assert name in explained, f"{section.__name__}.{name} has no docstring"
        assert explained[name].endswith((".", ";")), name


def test_every_section_is_among_those_checked():
    found = {annotation for annotation in models_of(Params)} - {Params}
    assert found == set(SECTIONS)
    assert "seed" in docstrings_of(Params)


def docstrings_of(section: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field, in the class or in a base class."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__[: section.__mro__.index(BaseModel)]):
        definition = ast.parse(inspect.getsource(cls)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    found[name] = inspect.cleandoc(docstring)
    return found


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_of(field.annotation)
    for part in getattr(annotation, "__args__", ()):
        yield from models_of(part)


def test_only_the_game_is_required():
    fields = [(section, name, field) for section in SECTIONS for name, field in section.model_fields.items()]
    required = {(section, name) for section, name, field in fields if field.is_required()}
    game = {(section, name) for section in GAMES.values() for name in ("name", "size")} - {(OthelloParams, "size")}
    assert required == game | {(LearningRateStep, "from_step"), (LearningRateStep, "learning_rate")}
    assert [name for name, field in Params.model_fields.items() if field.is_required()] == ["game"]


@pytest.mark.parametrize("name", presets())
def test_the_complete_file_of_a_preset_has_every_parameter_and_the_same_digest(name):
    text = params_text(preset(name))
    tree = yaml.safe_load(text)
    assert parse_params(text) == preset(name)
    assert params_digest(parse_params(text)) == params_digest(preset(name))
    for section, value in tree.items():
        if isinstance(value, dict):
            assert set(value) == set(type(getattr(preset(name), section)).model_fields), section
    assert set(tree) == set(Params.model_fields)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("search.cpuct", "c_puct"),
        ("selfplay.num_simulation", "num_simulations"),
        ("game.kommi", "komi"),
        ("network.num_block", "num_blocks"),
        ("sed", "seed"),
        ("trainning", "training"),
    ],
)
def test_the_error_for_a_misspelt_parameter_suggests_the_right_name(wrong, right):
    replaced = ".".join([*wrong.split(".")[:-1], right])
    assert f"unknown parameter {wrong} (did you mean {right!r}?)" in error_of(with_values({replaced: ..., wrong: 1}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("search.virtual_loss", 3, "unknown parameter search.virtual_loss"),
        ("game.in_a_row", 5, "unknown parameter game.in_a_row"),  # of another game
        ("go", {"size": 9}, "unknown parameter go"),
        ("game.othello", 3, "unknown parameter game.othello"),
        ("search.go", 1, "unknown parameter search.go"),
        ("game.size", ..., "parameter game.size is missing and has no default"),
        ("game", ..., "parameter game is missing and has no default"),
        ("search", 3, "search must be a mapping, got 3"),
        (
            "training.learning_rate",
            [{"from_step": 0, "learning_rate": 0.1}, {"from_step": 5, "learning_rate": -1}],
            "training.learning_rate.1.learning_rate = -1: ",
        ),
    ],
)
def test_a_wrong_file_is_reported_with_the_parameter(name, value, message):
    assert message in error_of(with_value(name, value))


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("seed", 2**63, "less than"),
        ("search.c_puct", 0, "greater than 0"),
        ("search.c_puct", float("nan"), "finite number"),
        ("search.root", "ucb", "'puct' or 'gumbel'"),
        ("selfplay.num_games", 2.5, "valid integer"),
        ("selfplay.num_simulations", 65_536, "less than or equal to 65535"),
        ("selfplay.overlap", "yes, please", "valid boolean"),
        ("gating.num_games", 401, "multiple of 2"),
        ("network.value_hidden", 10**13, "less than or equal to 65536"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_range(name, value, remedy):
    message = error_of(with_value(name, value))
    assert f"{name} = {value!r}" in message
    assert remedy in message


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        (
            {"search.root": "gumbel", "selfplay.dirichlet_fraction": 0, "selfplay.forced_playouts": 2},
            "selfplay.forced_playouts 2.0 has no effect at a Gumbel root; set it to 0",
        ),
        (
            {"search.root": "gumbel", "selfplay.dirichlet_fraction": 0},
            "selfplay.temperature_moves 8 has no effect at a Gumbel root; set it to 0",
        ),
        (
            {"game": {"name": "gomoku", "size": 5, "in_a_row": 4}, "network.ownership_head": True},
            "network.ownership_head is only for Go; set it to false for gomoku",
        ),
    ],
)
def test_conflicting_parameters_are_named(changes, remedy):
    assert remedy in error_of(with_values(changes))


def test_the_executor_of_an_older_file_is_read_by_its_current_name():
    assert parsed(with_value("executor.kind", "pool")).executor == ExecutorParams(kind="dask", num_processes=1)


@pytest.mark.parametrize("steps", [[10], [0, 20, 20], [0, 30, 20]])
def test_a_learning_rate_schedule_out_of_order_is_rejected(steps):
    schedule = [{"from_step": step, "learning_rate": 0.1} for step in steps]
    assert f"must start at step 0 and rise, got steps {steps}" in error_of(
        with_value("training.learning_rate", schedule)
    )


@pytest.mark.parametrize("stage", ["selfplay", "gating"])
def test_trees_too_small_for_a_search_are_rejected(stage):
    small, large = (with_values({f"{stage}.num_simulations": 31, "search.max_nodes": nodes}) for nodes in (32, 33))
    message = f"search.max_nodes 32 is too small: {stage}.num_simulations 31 needs at least 33"
    assert message in error_of(small)
    assert parsed(large).search.max_nodes == 33


@pytest.mark.parametrize("text", ["seed: [1", "a: b: c", "\tseed: 1", "seed: 1\x00", "[" * 5000, "seed: !!bool x"])
def test_a_file_that_is_not_yaml_is_rejected(text):
    with pytest.raises(ParamsError, match=r"^here.yaml is not YAML: ") as caught:
        parse_params(text, "here.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "seed", "1: 2"])
def test_a_file_that_is_not_a_mapping_of_parameters_is_rejected(text):
    with pytest.raises(ParamsError, match=r"^here.yaml: "):
        parse_params(text, "here.yaml")


def test_yaml_tags_create_no_objects():
    with pytest.raises(ParamsError, match="not YAML: could not determine a constructor"):
        parse_params("seed: !!python/object/apply:os.getpid []")


def test_a_file_in_another_encoding_is_rejected(tmp_path):
    (tmp_path / PARAMS_FILE).write_bytes("# Größe\nseed: 1".encode("latin-1"))
    with pytest.raises(ParamsError, match="not YAML: byte 4 is not UTF-8"):
        load_params(tmp_path)


def test_a_repeated_name_is_rejected():
    text = smoke_text() + "seed: 2\n"
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("seed:")]
    message = rf"not YAML: 'seed' is in line {lines[0]} and again in line {lines[1]}; remove one of them$"
    with pytest.raises(ParamsError, match=message):
        parse_params(text)

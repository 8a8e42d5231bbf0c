"""Parameters: every file there is validates, and a slip says what was meant."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import zero
from tests.parameters import parsed, preset, resolved_preset, smoke, with_value
from zero.config.params import (
    PARAMS_FILE,
    ExecutorParams,
    GatingParams,
    GomokuParams,
    GoParams,
    LearningRateStep,
    NetworkParams,
    Params,
    ProfileParams,
    ReplayParams,
    SearchParams,
    SelfplayParams,
    TrainingParams,
    VerificationParams,
    load_params,
    parse_params,
)
from zero.config.presets import preset_text, presets
from zero.errors import ParamsError

PROJECT_DIR = Path(zero.__file__).parents[1]
SECTIONS: list[type[BaseModel]] = [
    *(GoParams, GomokuParams, NetworkParams, SearchParams, SelfplayParams, ReplayParams, LearningRateStep),
    *(TrainingParams, GatingParams, VerificationParams, ProfileParams, ExecutorParams),
]


def fault(tree: Any) -> str:
    """The message that a file is refused with; always one line."""
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


def test_the_presets_of_the_design_are_there():
    assert presets() == ["go19-paper", "go5", "go9-gpu", "go9-laptop", "go9-paper", "go9-simple", "gomoku8", "smoke"]


def test_the_default_is_the_laptop_preset():
    assert (PROJECT_DIR / PARAMS_FILE).read_text() == preset_text("go9-laptop")


def test_the_paper_preset_has_the_numbers_of_the_paper():
    params = preset("go19-paper")
    assert (params.selfplay.num_games, params.selfplay.num_simulations) == (25_000, 1_600)
    assert (params.replay.window_games, params.training.batch_size) == (500_000, 2_048)
    assert (params.training.optimizer, params.training.momentum, params.training.weight_decay) == ("sgd", 0.9, 1e-4)
    assert (params.gating.num_games, params.gating.threshold) == (400, 0.55)
    rates = [(entry.from_step, entry.learning_rate) for entry in params.training.learning_rate]
    assert rates == [(0, 1e-2), (400_000, 1e-3), (600_000, 1e-4)]
    # alpha = 0.03 on 19x19
    assert params.selfplay.dirichlet_concentration / 361 == pytest.approx(0.03, abs=1e-4)


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
    """What stands under each field, in the class or in one that it extends."""
    found: dict[str, str] = {}
    for cls in reversed(section.__mro__[: section.__mro__.index(BaseModel)]):
        definition = ast.parse(inspect.getsource(cls)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = inspect.cleandoc(words)
    return found


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_of(field.annotation)
    for part in getattr(annotation, "__args__", ()):
        yield from models_of(part)


def test_no_parameter_has_a_default_but_those_that_older_files_lack():
    # What is not written out is not seen by DVC, which sees these when they are.
    sections: list[type[BaseModel]] = [Params, *SECTIONS]
    fields = [(name, field) for section in sections for name, field in section.model_fields.items()]
    later = {name for name, field in fields if not field.is_required()}
    newest = {"value_loss", "warmup_steps"}
    assert later == {"pooled_heads", "search_value_weight", "overlap", "pass_wins", *newest}


def test_parameters_are_frozen():
    params = parsed(smoke())
    with pytest.raises(ValueError, match="frozen"):
        params.search.c_puct = 2.0


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
def test_a_misspelt_parameter_is_named_with_what_was_meant(wrong, right):
    *path, _ = wrong.split(".")
    tree = with_value(".".join([*path, right]), ...)
    section = tree
    for part in path:
        section = section[part]
    section[wrong.split(".")[-1]] = 1
    assert f"unknown parameter {wrong} (did you mean {right!r}?)" in fault(tree)


def test_an_unknown_parameter_is_named():
    message = fault(with_value("search.virtual_loss", 3))
    assert "unknown parameter search.virtual_loss" in message
    assert "did you mean" not in message


def test_a_missing_parameter_is_named():
    assert "parameter gating.threshold is missing" in fault(with_value("gating.threshold", ...))


def test_a_missing_section_is_named():
    assert "parameter replay is missing" in fault(with_value("replay", ...))


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("seed", -1, "greater than or equal to 0"),
        ("seed", 2**63, "less than"),
        ("game.size", 20, "less than or equal to 19"),
        ("game.size", 1, "greater than or equal to 2"),
        ("game.komi", 7.25, "multiple of 0.5"),
        ("search.c_puct", 0, "greater than 0"),
        ("search.c_puct", float("nan"), "finite number"),
        ("search.c_puct", "much", "valid number"),
        ("selfplay.num_games", 0, "greater than or equal to 1"),
        ("selfplay.overlap", "yes, please", "valid boolean"),
        ("selfplay.overlap", 1, "valid boolean"),
        ("network.pooled_heads", "no", "valid boolean"),
        ("selfplay.num_games", 2.5, "valid integer"),
        ("selfplay.num_simulations", 65_536, "less than or equal to 65535"),
        ("selfplay.dirichlet_fraction", 1.01, "less than or equal to 1"),
        ("selfplay.dirichlet_concentration", 0, "greater than 0"),
        ("search.evaluation_cache", -1, "greater than or equal to 0"),
        ("search.considered_actions", 0, "greater than or equal to 1"),
        ("search.root", "ucb", "'puct' or 'gumbel'"),
        ("selfplay.full_search_fraction", 0, "greater than 0"),
        ("selfplay.forced_playouts", -0.5, "greater than or equal to 0"),
        ("selfplay.calibration_fraction", 1.5, "less than or equal to 1"),
        ("training.ema_decay", 1, "less than 1"),
        ("training.search_value_weight", 1.5, "less than or equal to 1"),
        ("training.momentum", 1, "less than 1"),
        ("training.optimizer", "sdg", "'sgd' or 'adam'"),
        ("gating.num_games", 401, "multiple of 2"),
        ("gating.games_per_shard", 25, "multiple of 2"),
        ("gating.threshold", 55, "less than or equal to 1"),
        ("profile.device", "tpu", "'cpu' or 'cuda'"),
        ("profile.backend", "tensorflow", "'torch' or 'openvino'"),
        ("profile.search_threads", 0, "greater than or equal to 1"),
        ("executor.num_processes", -1, "greater than or equal to 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_range(name, value, remedy):
    message = fault(with_value(name, value))
    assert f"{name} = {value!r}" in message
    assert remedy in message


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"selfplay.fast_simulations": 999}, "fast_simulations 999 is above num_simulations"),
        ({"search.root": "gumbel"}, "selfplay.dirichlet_fraction 0.25 has no place at a Gumbel root; set it to 0"),
        (
            {"search.root": "gumbel", "selfplay.dirichlet_fraction": 0, "selfplay.forced_playouts": 2},
            "selfplay.forced_playouts 2.0 has no place at a Gumbel root; set it to 0",
        ),
        (
            {"search.root": "gumbel", "selfplay.dirichlet_fraction": 0},
            "selfplay.temperature_moves 8 has no place at a Gumbel root; set it to 0",
        ),
        ({"network.global_pooling": True, "network.tower": "shallow"}, "no blocks in a 'shallow' tower"),
        ({"training.batch_size": 9, "profile.training_processes": 2}, "batch_size 9 cannot be shared"),
        (
            {"profile.device": "cuda", "profile.backend": "openvino"},
            "backend 'openvino' runs on device 'cpu', got 'cuda'; set backend to 'torch'",
        ),
        (
            {"game": {"name": "gomoku", "size": 5, "in_a_row": 4}, "network.ownership_head": True},
            "network.ownership_head is for Go alone; set it to false for gomoku",
        ),
        (
            {"training.num_steps": 12, "training.warmup_steps": 13},
            "warmup_steps 13 is longer than the first training, num_steps 12; lower it",
        ),
    ],
)
def test_parameters_that_do_not_go_together_are_named(changes, remedy):
    tree = smoke()
    for name, value in changes.items():
        *path, last = name.split(".")
        section = tree
        for part in path:
            section = section[part]
        section[last] = value
    assert remedy in fault(tree)


def test_a_wrong_section_is_named():
    assert "search = 3: Input should be a valid dictionary" in fault(with_value("search", 3))


def test_an_unknown_game_is_named_with_those_there_are():
    message = fault(with_value("game.name", "chess"))
    assert "'chess'" in message
    assert "'go', 'gomoku'" in message


def test_a_parameter_of_another_game_is_unknown():
    assert "unknown parameter game.in_a_row" in fault(with_value("game.in_a_row", 5))


def test_a_line_longer_than_the_board_is_refused():
    game = {"name": "gomoku", "size": 5, "in_a_row": 6}
    assert "in_a_row 6 does not fit on a board of size 5" in fault(with_value("game", game))


@pytest.mark.parametrize("steps", [[10], [0, 20, 20], [0, 30, 20]])
def test_a_learning_rate_schedule_out_of_order_is_refused(steps):
    schedule = [{"from_step": step, "learning_rate": 0.1} for step in steps]
    assert f"must start at step 0 and rise, got steps {steps}" in fault(with_value("training.learning_rate", schedule))


def test_an_empty_learning_rate_schedule_is_refused():
    assert "training.learning_rate" in fault(with_value("training.learning_rate", []))


def test_a_fault_within_a_list_is_named_by_its_place():
    schedule = [{"from_step": 0, "learning_rate": 0.1}, {"from_step": 5, "learning_rate": -1}]
    assert "training.learning_rate.1.learning_rate = -1" in fault(with_value("training.learning_rate", schedule))


@pytest.mark.parametrize("stage", ["selfplay", "gating"])
def test_trees_that_cannot_hold_a_search_are_refused(stage):
    tree = with_value(f"{stage}.num_simulations", 31)
    tree["search"]["max_nodes"] = 32
    message = fault(tree)
    assert f"search.max_nodes 32 is too small: {stage}.num_simulations 31 needs at least 33" in message
    tree["search"]["max_nodes"] = 33
    assert parsed(tree).search.max_nodes == 33


@pytest.mark.parametrize("text", ["seed: [1", "a: b: c", "\tseed: 1", "seed: 1\x00"])
def test_a_file_that_is_not_yaml_is_refused(text):
    with pytest.raises(ParamsError, match=r"^here.yaml is not YAML: ") as caught:
        parse_params(text, "here.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "seed", "1: 2"])
def test_a_file_that_is_no_mapping_of_parameters_is_refused(text):
    with pytest.raises(ParamsError, match=r"^here.yaml: "):
        parse_params(text, "here.yaml")


def test_yaml_makes_no_objects():
    with pytest.raises(ParamsError, match="not YAML: could not determine a constructor"):
        parse_params("seed: !!python/object/apply:os.getpid []")


def test_a_file_that_is_not_there_is_named_with_the_remedy(tmp_path):
    with pytest.raises(ParamsError, match=rf"no params.yaml in {tmp_path}; run this in a lineage's workspace"):
        load_params(tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / PARAMS_FILE).write_bytes("# Größe\nseed: 1".encode("latin-1"))
    with pytest.raises(ParamsError, match="not YAML: byte 4 is no UTF-8"):
        load_params(tmp_path)


def test_a_file_is_read_from_its_folder(tmp_path):
    (tmp_path / PARAMS_FILE).write_text(resolved_preset("gomoku8"))
    assert load_params(tmp_path) == preset("gomoku8")


def test_an_unknown_preset_is_named_with_those_there_are():
    with pytest.raises(ParamsError) as caught:
        preset_text("go9-labtop")
    assert str(caught.value).startswith("unknown preset 'go9-labtop' (did you mean 'go9-laptop'?); there are: ")


def test_a_game_is_told_by_its_name():
    game = preset("gomoku8").game
    assert isinstance(game, GomokuParams)
    assert (game.size, game.in_a_row) == (8, 5)


def test_a_name_that_is_there_twice_is_refused():
    text = preset_text("smoke") + "seed: 2\n"
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("seed:")]
    words = rf"not YAML: 'seed' is in line {lines[0]} and again in line {lines[1]}; remove one of them$"
    with pytest.raises(ParamsError, match=words):
        parse_params(text)

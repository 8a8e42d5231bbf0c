"""What MLflow shows of a generation, without a server."""

from tests.parameters import preset
from zero.tracking.pages import flatten


def test_flat_parameters_are_all_parameters():
    params = preset("smoke")
    flat = flatten(params)
    assert flat["game.size"] == "5"
    assert flat["training.learning_rate.1.from_step"] == "20000"
    assert flat["search.tree_reuse"] == "True"
    single = {f"{name}.{field}" for name, section in params if name != "seed" for field in type(section).model_fields}
    assert {name for name in flat if "learning_rate." not in name} == single - {"training.learning_rate"} | {"seed"}

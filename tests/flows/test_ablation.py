"""The flow of an ablation on real servers: two architectures of the `smoke` preset, and the same run again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.ablation import make_lineage, parameters_text, with_architecture
from tests.end_to_end.project import git
from tests.flows.test_generation import RUN, artifacts, last_run
from tests.infra.servers import Servers
from zero.config.params import load_params, preset_text, presets
from zero.errors import ParamsError
from zero.record.ledger import read_ledger
from zero.storage.files import write_atomic
from zero.storage.layout import workspace_dir

WORDS = (
    *(*RUN, "zero-ablation", "--watch", "--param", "name=arch", "--param", "preset=smoke"),
    *("--param", 'architectures=["sep-conv", "shallow"]', "--param", "games=4"),
)


@pytest.fixture(scope="module")
def runs(servers: Servers) -> list[dict[str, Any]]:
    """Two runs of the flow. The second finds one lineage as a killed `zero new`, the other as a killed push left it."""
    servers.typed(*WORDS)
    found = [last_run(servers, "zero-ablation")]
    shutil.rmtree(workspace_dir(servers.home, "arch-sep-conv"))
    start = git(servers.home, "rev-parse", "arch-shallow/gen-0000").strip()
    git(servers.home, "update-ref", "refs/heads/lineage/arch-shallow", start)
    for folder in (servers.home, workspace_dir(servers.home, "arch-shallow")):
        git(folder, "tag", "--delete", "arch-shallow/gen-0001")
    servers.typed(*WORDS)
    return [*found, last_run(servers, "zero-ablation")]


def test_each_architecture_has_one_generation(servers: Servers, runs: list[dict[str, Any]]) -> None:
    assert [run["state"]["type"] for run in runs] == ["COMPLETED"] * 2
    workspaces = {name: workspace_dir(servers.home, f"arch-{name}") for name in ("sep-conv", "shallow")}
    assert {name: read_ledger(path)[-1].generation for name, path in workspaces.items()} == {
        "sep-conv": 1,
        "shallow": 1,
    }
    networks = {name: load_params(path).network for name, path in workspaces.items()}
    assert (networks["sep-conv"].tower, networks["sep-conv"].heads) == ("plain", "separate")
    assert (networks["shallow"].tower, networks["shallow"].num_blocks) == ("shallow", 2)


def test_the_table_is_on_the_page_of_the_run(servers: Servers, runs: list[dict[str, Any]]) -> None:
    pages = [artifacts(servers, run)["arch-comparison"]["data"] for run in runs]
    assert pages[0] == pages[1], "the second run plays no game"
    assert {line.split(" | ")[0] for line in pages[0].splitlines()[2:]} == {"| arch-sep-conv", "| arch-shallow"}


@pytest.mark.parametrize("preset", presets())
def test_every_preset_can_have_another_architecture(preset: str) -> None:
    tree = with_architecture(yaml.safe_load(preset_text(preset)), "shallow")
    assert (tree["network"]["tower"], tree["gating"]["threshold"]) == ("shallow", 0.0)
    assert tree["game"] == yaml.safe_load(preset_text(preset))["game"]


def test_networks_of_other_parameters_are_not_compared(tmp_path: Path) -> None:
    workspace_dir(tmp_path, "arch-shallow").mkdir(parents=True)
    tree = with_architecture(yaml.safe_load(preset_text("smoke")), "shallow")
    write_atomic(tmp_path / ".zero/ablations/arch-shallow.yaml", yaml.safe_dump(tree, sort_keys=False).encode())
    assert make_lineage.fn(tmp_path, "arch-shallow", "smoke", "shallow") == "arch-shallow"
    with pytest.raises(
        ParamsError, match=r"arch-shallow was made from other parameters, .*; give another --param name="
    ):
        make_lineage.fn(tmp_path, "arch-shallow", "go5", "shallow")


def test_a_file_of_parameters_may_have_automatic_values(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(preset_text("go9-laptop"))
    assert "auto" in parameters_text(tmp_path, "mine.yaml")


def test_a_file_of_parameters_takes_the_place_of_a_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"# mine\n{preset_text('smoke')}")
    assert parameters_text(tmp_path, "mine.yaml") == f"# mine\n{preset_text('smoke')}"
    assert parameters_text(tmp_path, "smoke") == preset_text("smoke")
    with pytest.raises(ParamsError, match=f"cannot read {tmp_path}/other.yaml: No such file.*give a file below.*smoke"):
        parameters_text(tmp_path, "other.yaml")
    (tmp_path / "mine.yaml").write_bytes("# größer\n".encode("latin-1"))
    with pytest.raises(ParamsError, match="it is not UTF-8"):
        parameters_text(tmp_path, "mine.yaml")
    (tmp_path / "mine.yaml").write_text("- smoke\n")
    with pytest.raises(ParamsError, match=f"^{tmp_path}/mine.yaml: "):
        parameters_text(tmp_path, "mine.yaml")

"""The flow `zero-ablation`: networks of several architectures learn from the same games, and are compared."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from flows.commands import Event, run_zero
from flows.generation import generation
from zero.config.params import ExecutorKind, parse_params, preset_text, presets
from zero.config.settings import STATE_FOLDER, home_dir
from zero.errors import ParamsError
from zero.lineage.workspace import committed_ledger
from zero.network.profile import resolve_here
from zero.storage.files import write_atomic
from zero.storage.layout import workspace_dir
from zero.storage.vcs import git

Architecture = Literal["dual-res", "sep-res", "dual-conv", "sep-conv", "shallow"]
# Without the additions that the paper does not have.
HEADS = {"pooled_heads": False, "global_pooling": False}
ARCHITECTURES: dict[Architecture, dict[str, Any]] = {
    "dual-res": {"tower": "residual", "heads": "joint"},
    "sep-res": {"tower": "residual", "heads": "separate"},
    "dual-conv": {"tower": "plain", "heads": "joint"},
    "sep-conv": {"tower": "plain", "heads": "separate"},
    "shallow": {"tower": "shallow", "heads": "joint", "num_blocks": 2},
}
"""The four networks of the paper's figure 4, and the two convolutions of small reproductions."""


@flow(name="zero-ablation", flow_run_name="{name}", persist_result=True, result_serializer="json")
def ablation(
    name: str = "ablation",
    preset: str = "go9-supervised",
    architectures: tuple[Architecture, ...] = tuple(ARCHITECTURES),
    games: Annotated[int, Field(ge=2, multiple_of=2)] = 100,
    executor: ExecutorKind | None = None,
) -> Event:
    """Makes a lineage for each architecture with one generation, and compares their networks.

    `preset` is the name of a preset, or the path of a file of parameters (`.yaml`) from the project's folder.
    What an earlier run made is kept: the same run again goes on where it was interrupted.
    """
    home = home_dir()
    lineages = [make_lineage(home, f"{name}-{architecture}", preset, architecture) for architecture in architectures]
    for lineage in lineages:
        workspace = workspace_dir(home, lineage)
        if committed_ledger(workspace)[1][-1].generation == 0:
            generation(lineage, executor)
        else:  # the run before may have been killed between the commit and its tag
            run_zero(workspace, "prepare", lineage, listen=get_run_logger().info)
    found = compare(home, lineages, games)
    create_markdown_artifact(
        markdown=comparison_text(found), key=f"{name}-comparison", description="the networks compared"
    )
    return found


@task(task_run_name="new-{lineage}", cache_policy=NO_CACHE)
def make_lineage(home: Path, lineage: str, preset: str, architecture: Architecture) -> str:
    """Makes the lineage of an architecture, unless it exists.

    Raises:
      ParamsError: it exists, and was made from other parameters.
    """
    tree = with_architecture(yaml.safe_load(parameters_text(home, preset)), architecture)
    text = yaml.safe_dump(tree, sort_keys=False)
    params = home / STATE_FOLDER / "ablations" / f"{lineage}.yaml"
    has_workspace = workspace_dir(home, lineage).exists()
    if has_workspace or git(home, "for-each-ref", f"refs/heads/lineage/{lineage}").strip():
        if params.exists() and params.read_text("utf-8") != text:
            raise ParamsError(f"{lineage} was made from other parameters, {params}; give another --param name=")
        if not has_workspace:  # killed after the push
            run_zero(home, "restore", lineage, listen=get_run_logger().info)
        return lineage
    write_atomic(params, text.encode())
    run_zero(home, "new", lineage, "--params", str(params), listen=get_run_logger().info)
    return lineage


def with_architecture(tree: dict[str, Any], architecture: Architecture) -> dict[str, Any]:
    """Parameters with another network, which is promoted however it did in its match."""
    return tree | {
        "network": tree.get("network", {}) | HEADS | ARCHITECTURES[architecture],
        "gating": tree.get("gating", {}) | {"threshold": 0.0},
    }


def parameters_text(home: Path, preset: str) -> str:
    """Text of a preset, or of a file of parameters.

    Raises:
      ParamsError: there is no such preset or file, or the file has no valid parameters.
    """
    if not preset.endswith(".yaml"):
        return preset_text(preset)
    try:
        text = (home / preset).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"give a file below {home}, or a preset: {', '.join(presets())}"
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ParamsError(f"cannot read {home / preset}: {reason}; {remedy}") from None
    parse_params(resolve_here(text), str(home / preset))  # as `zero new` does later
    return text


@task(task_run_name="compare", cache_policy=NO_CACHE)
def compare(home: Path, lineages: list[str], games: int) -> Event:
    """The table of `zero compare`."""
    arguments = ("compare", *lineages, "--games", str(games), "--json")
    return run_zero(home, *arguments, listen=get_run_logger().info)[-1]


def comparison_text(comparison: Event) -> str:
    """The table as a page."""
    rows = ["| network | weights | rating | 95 % interval | accuracy | value error |", "|---|---|---|---|---|---|"]
    for each in comparison["networks"]:
        standing, test = each["standing"], each["test"]
        interval = (
            "given" if standing["low"] == standing["high"] else f"{standing['low']:z.0f} to {standing['high']:z.0f}"
        )
        predicted = f"{test['policy_accuracy']:.1%} | {test['value_error']:.3f}" if test else "· | ·"
        rows.append(
            f"| {each['lineage']} | {each['num_weights']:,} | {standing['elo']:z.0f} | {interval} | {predicted} |"
        )
    return "\n".join(rows) + "\n"

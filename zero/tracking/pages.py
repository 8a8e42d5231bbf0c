"""Content of the MLflow runs and model versions of a generation, without a server or a clock.

Metrics in the run of a stage have plain names (`loss`). In the parent run they have the stage as a prefix, with its
place in the loop (`3-training/loss`): MLflow groups charts by it and sorts the groups. Those of the ladder are
`ladder/...`, with step = generation. Costs are `6-cost/...`; in the run of a stage they are `system/...`, which MLflow
shows on a page of their own.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from zero.errors import StorageError
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.record.costs import StageCosts
from zero.record.generation import Generation, required
from zero.record.ledger import generation_tag, line_digest
from zero.record.metrics import read_curve
from zero.record.provenance import PLAYER, Attestation
from zero.record.texts import decision_word, match_interval
from zero.storage.files import canonical_line
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DVC_LOCK,
    GATING_METRICS,
    PROVENANCE_FILE,
    REPLAY_METRICS,
    SELFPLAY_METRICS,
    TRAINING_CURVE,
    TRAINING_METRICS,
    VERIFICATION_METRICS,
    WINDOW_DIR,
)
from zero.storage.manifests import FileRef, LedgerEntry, MatchResult, PromotionDecision
from zero.tracking.cards import GATE_FILE, gate_picture, model_card, run_note

WINDOW_MANIFEST = "data/window/manifest.json"
REQUIREMENTS = ("mlflow", "numba", "numpy", "pydantic", "pyyaml", "safetensors", "torch")
"""Packages that a registered player needs; the versions are those of the generation's constraints.txt."""
SECTIONS = {
    "selfplay": ("selfplay.", "search."),
    "training": ("training.", "replay.", "network."),
    "gating": ("gating.", "search."),
}
"""Parameters in the run of a stage; the parent run has all."""
PARENT_METRICS = {
    "selfplay": ("num_games", "num_positions", "mean_length", "unique_games"),
    "training": (
        *("loss", "policy_loss", "value_loss", "constant_value_loss", "explained_variance", "saturated_values"),
        *("learning_rate", "policy_accuracy", "policy_entropy", "policy_gradient_norm", "value_gradient_norm"),
    ),
    "gating": ("promoted", "score", "score_low", "score_high", "mean_length", "unique_games"),
}
"""Metrics of each stage in the parent run; the run of the stage has all."""
GROUPS = {
    "selfplay": "1-selfplay",
    "replay": "2-replay",
    "training": "3-training",
    "gating": "4-gating",
    "verification": "5-verification",
}
"""Prefix of each stage's metrics in the parent run: in alphabetical order they are in the order of the loop."""
NOTE_TAG = "mlflow.note.content"
"""Tag with the description that MLflow shows."""
LADDER_CHAMPION, LADDER_GAMES = "ladder/champion_generation", "ladder/total_games"
COST_GROUP, SYSTEM_GROUP = "6-cost", "system"
"""Prefixes of costs in the parent run and in the run of a stage."""
COST_METRICS = ("seconds", "cpu_seconds", "gpu_seconds", "games", "evaluations")


class MetricPoint(NamedTuple):
    """One value of a curve."""

    name: str
    value: float
    step: int


class TrainingData(NamedTuple):
    """What a network was trained on, for MLflow's page of data sets."""

    name: str
    digest: str  # MD5 of DVC: 36 characters with its ".dir", which is MLflow's limit
    source: str
    profile: dict[str, int]


class Page(NamedTuple):
    """Content of one run, which is identified by its `key`."""

    name: str
    key: dict[str, str]
    tags: dict[str, str]
    params: dict[str, str]
    points: list[MetricPoint]
    files: dict[str, bytes]  # content by path
    data: TrainingData | None
    seconds: float = 0.0  # wall-clock seconds of its work, 0.0 if unknown


class ModelVersion(NamedTuple):
    """A network in the catalogue."""

    generation: int
    alias: str  # the alias of its generation, which never moves
    tags: dict[str, str]
    note: str
    weights: FileRef
    weights_path: Path | None  # None if they are not on this machine
    config: dict[str, Any]  # a profile, for `zero.tracking.player`
    requirements: list[str]
    input_shape: tuple[int, ...]  # [P, S, S]
    num_actions: int


def run_key(lineage: str, number: int, stage: str) -> dict[str, str]:
    """Tags that identify a run of a generation."""
    return generation_key(lineage, number) | {"zero.stage": stage}


def generation_key(lineage: str, number: int) -> dict[str, str]:
    """Tags that all runs of a generation have."""
    return {"zero.lineage": lineage, "zero.generation": str(number)}


def generation_page(generation: Generation) -> Page:
    """The parent run: all parameters, the curves, and the results of each stage."""
    entry, decision = generation.read_entry(), generation.read_entry().decision
    tags = _common_tags(generation) | {
        "zero.decision": decision_word(entry),
        "zero.champion": entry.champion,
        "zero.champion_generation": str(entry.champion_generation),
        "zero.params_digest": entry.params_digest,
        "zero.lock_digest": entry.lock_digest,
        NOTE_TAG: run_note(generation, entry),
    }
    if entry.source is not None:
        tags |= {"zero.source": entry.source.tag, "zero.source_commit": entry.source.commit}
    points: list[MetricPoint] = []
    files, pictures = ["params.yaml"], {}
    data = None
    if decision is not None:
        attestation, data = _attestation(generation), training_data(generation)
        tags |= {"zero.challenger": decision.challenger, "zero.opponent": decision.champion}
        tags |= {f"zero.engine.{stage}": digest for stage, digest in attestation.internal.engine.items()}
        tags |= {f"zero.profile.{name}": value for name, value in attestation.internal.profile.items()}
        tags |= _health_tags(generation)
        tags |= {"zero.window": attestation.byproducts[WINDOW_MANIFEST].sha256}
        for stage, found in _stage_points(generation).items():
            shown = [point for point in found if point.name in PARENT_METRICS[stage]]
            points += [MetricPoint(f"{GROUPS[stage]}/{point.name}", point.value, point.step) for point in shown]
        points += _at(generation.number, dict(check_metrics(generation)))
        points += cost_points(generation)
        points.sort(key=lambda point: point.name.rpartition("/")[0])  # MLflow's table keeps the order
        files += [DVC_LOCK, PROVENANCE_FILE]
        pictures[GATE_FILE] = gate_picture(decision)
    return Page(
        name=_short(generation.tag),
        key=run_key(generation.lineage, generation.number, "generation"),
        tags=tags,
        params=flatten(generation.read_params()),
        points=points,
        files={name: read_text(generation, name).encode() for name in files}
        | {"record/ledger-line.json": canonical_line(entry)}
        | pictures,
        data=data,
        seconds=generation.costs.total().seconds if generation.costs else 0.0,
    )


def cost_points(generation: Generation) -> list[MetricPoint]:
    """Costs of the generation, in total and by stage; empty if they are not noted."""
    if generation.costs is None:
        return []
    numbers = _costs(generation.costs.total(), COST_GROUP)
    for stage, costs in generation.costs.stages.items():
        numbers |= _costs(costs, f"{COST_GROUP}/{GROUPS[stage]}")
    return _at(generation.number, numbers)


def stage_pages(generation: Generation) -> list[Page]:
    """The runs of the stages; empty for generation 0, a rollback and a branch."""
    entry, decision = generation.read_entry(), generation.read_entry().decision
    if decision is None:
        return []
    attestation = _attestation(generation)
    names = {"selfplay": [SELFPLAY_METRICS], "training": [TRAINING_METRICS, TRAINING_CURVE], "gating": [GATING_METRICS]}
    files = {stage: {name: read_text(generation, name).encode() for name in names[stage]} for stage in names}
    match = {"zero.challenger": decision.challenger, "zero.opponent": decision.champion}
    player = attestation.dependencies.get(PLAYER)
    tags = {
        "selfplay": {"zero.champion": player.sha256 if player else decision.champion},
        "training": {
            "zero.challenger": decision.challenger,
            "zero.window": attestation.byproducts[WINDOW_MANIFEST].sha256,
            **_health_tags(generation),
        },
        "gating": match | {"zero.decision": decision_word(entry)},
    }
    params = flatten(generation.read_params())
    costs = generation.costs.stages if generation.costs else {}
    return [
        Page(
            name=stage,
            key=run_key(generation.lineage, generation.number, stage),
            tags=_common_tags(generation) | tags[stage],
            params={name: value for name, value in params.items() if name.startswith(SECTIONS[stage])},
            points=[*points, *(_at(generation.number, _costs(costs[stage], SYSTEM_GROUP)) if stage in costs else ())],
            files=files[stage],
            data=training_data(generation) if stage == "training" else None,
            seconds=costs[stage].seconds if stage in costs else 0.0,
        )
        for stage, points in _stage_points(generation).items()
    ]


def ladder_page(lineage: str) -> Page:
    """The run of the ladder, without its points."""
    note = "One point per generation: the step is the generation. The record is the ledger in git."
    key = {"zero.lineage": lineage, "zero.stage": "ladder"}
    return Page("ladder", key, {NOTE_TAG: note}, {}, [], {}, None)


def ladder_points(generation: Generation, earlier_games: float) -> list[MetricPoint]:
    """The points of a generation in the run of the ladder. `earlier_games`: self-play games before it."""
    entry = generation.read_entry()
    numbers: dict[str, float] = {"champion_generation": entry.champion_generation}
    if entry.decision is not None:
        match, selfplay = match_numbers(entry.decision), selfplay_numbers(generation)
        numbers |= {name: match[name] for name in ("score", "score_low", "score_high", "promoted")}
        numbers |= {"loss": training_numbers(generation)["loss"]}
        numbers |= {name: selfplay[name] for name in ("mean_length", "num_games")}
        numbers["total_games"] = earlier_games + selfplay["num_games"]
    return [MetricPoint(f"ladder/{point.name}", point.value, point.step) for point in _at(generation.number, numbers)]


def challenger_version(generation: Generation) -> ModelVersion:
    """The network of this generation; for generation 0 the initial random network.

    Raises:
      StorageError: its folder is missing or has another network.
    """
    entry = generation.read_entry()
    if entry.decision is None:
        return champion_version(generation)
    weights = required(generation.challenger, f"{CHALLENGER_DIR} of {generation.tag}").weights
    return _version(generation, entry, weights, CHALLENGER_DIR, entry.decision.challenger)


def champion_version(generation: Generation) -> ModelVersion:
    """The champion at the start of the generation.

    Raises:
      StorageError: its folder is missing or has another network.
    """
    champion = required(generation.champion, f"{CHAMPION_DIR} of {generation.tag}")
    own, decision = generation.read_entry(), generation.read_entry().decision
    # A branched lineage starts with a champion of the other lineage, which is registered under the branch's own number.
    made = (entry for entry in generation.ledger if entry.decision and entry.generation == champion.generation)
    entry = next(made, generation.ledger[0])
    expected = decision.champion if decision else own.champion
    return _version(generation, entry, champion.weights, CHAMPION_DIR, expected)


def check_metrics(generation: Generation) -> Iterator[tuple[str, float]]:
    """Metrics of the stages replay and verification, as `2-replay/num_games`. Older lineages have none.

    Raises:
      StorageError: one of the files is damaged.
    """
    for stage, path, needed in (
        ("replay", REPLAY_METRICS, "num_games"),
        ("verification", VERIFICATION_METRICS, "selfplay_num_games"),
    ):
        if generation.file(path) is not None:
            for name, value in read_numbers(generation, path, (needed,)).items():
                yield f"{GROUPS[stage]}/{name}", value


def training_curve(generation: Generation) -> tuple[MetricPoint, ...]:
    """The finite values of `plots/training.csv`, and the explained variance if the constant predictor's loss is known.

    Raises:
      StorageError: the file is missing or damaged.
    """
    try:
        rows = read_curve(read_text(generation, TRAINING_CURVE))
        for row in rows:
            if row.get("constant_value_loss", 0.0) > 0.0:
                row["explained_variance"] = 1.0 - row["value_loss"] / row["constant_value_loss"]
        points = [MetricPoint(n, value, int(row["step"])) for row in rows for n, value in row.items() if n != "step"]
    except (ValueError, KeyError):
        raise _damaged(generation, TRAINING_CURVE) from None
    return tuple(point for point in points if math.isfinite(point.value))


def training_data(generation: Generation) -> TrainingData:
    """The window that the network was trained on; its size only if the window's manifest is on this machine.

    Raises:
      StorageError: dvc.lock is missing or damaged.
    """
    out = generation.outs.get(WINDOW_DIR)
    if out is None:
        read_text(generation, DVC_LOCK)  # a missing file has another error
        raise _damaged(generation, DVC_LOCK)
    window, profile = generation.window, {}
    if window is not None:
        profile = {"num_games": window.num_games, "num_positions": window.num_positions}
    return TrainingData(f"{generation.lineage}-window", out.md5, f"{generation.tag}:{WINDOW_DIR}", profile)


def match_numbers(decision: PromotionDecision) -> dict[str, float]:
    """The metrics of the match of gating."""
    match = decision.match
    return result_numbers(match) | {
        "promoted": float(decision.promoted),
        "threshold": decision.threshold,
        "num_games": match.num_games,
        "wins_as_black": match.as_black.wins,
        "wins_as_white": match.as_white.wins,
    }


def result_numbers(match: MatchResult) -> dict[str, float]:
    """The metrics of any match."""
    low, high = match_interval(match)
    return {
        "score": match.score,
        "score_low": low,
        "score_high": high,
        "wins": match.wins,
        "losses": match.losses,
        "draws": match.draws,
        "unique_games": match.unique_games,
        "mean_length": match.mean_length,
    }


def selfplay_numbers(generation: Generation) -> dict[str, float]:
    """Numbers of `metrics/selfplay.json`.

    Raises:
      StorageError: the file is missing or damaged.
    """
    return read_numbers(generation, SELFPLAY_METRICS, ("num_games", "mean_length"))


def training_numbers(generation: Generation) -> dict[str, float]:
    """Numbers of `metrics/training.json`.

    Raises:
      StorageError: the file is missing or damaged.
    """
    return read_numbers(generation, TRAINING_METRICS, ("step", "loss"))


def read_text(generation: Generation, path: str) -> str:
    """A text file of a generation.

    Raises:
      StorageError: it is missing or is not text.
    """
    content = generation.file(path)
    try:
        if content is not None:
            return content.decode()
    except UnicodeDecodeError:
        pass
    raise _unreadable(generation, path)


def read_numbers(generation: Generation, path: str, needed: tuple[str, ...]) -> dict[str, float]:
    """Numbers of a metrics file by name; `{"ended": {"passes": 9}}` gives `ended_passes`.

    Raises:
      StorageError: the file is missing or damaged, or lacks one of the names in `needed`.
    """
    text = read_text(generation, path)
    try:
        numbers = dict(_flat_numbers(json.loads(text), ""))
    except (ValueError, AttributeError, RecursionError):
        raise _damaged(generation, path) from None
    if not numbers.keys() >= set(needed):
        raise _damaged(generation, path)
    return numbers


def _attestation(generation: Generation) -> Attestation:
    if generation.attestation is None:
        raise _unreadable(generation, PROVENANCE_FILE)
    return generation.attestation


def _requirements(generation: Generation) -> list[str]:
    """Pinned packages that a registered player needs."""
    lines = [line.partition("#")[0].strip() for line in read_text(generation, CONSTRAINTS_FILE).splitlines()]
    return [line for line in lines if line.partition("==")[0].lower() in REQUIREMENTS]


def _costs(costs: StageCosts, prefix: str) -> dict[str, float]:
    return {f"{prefix}/{name}": getattr(costs, name) for name in COST_METRICS}


def _health_tags(generation: Generation) -> dict[str, str]:
    return {} if generation.health is None else {"zero.health": generation.health.verdict}


def _common_tags(generation: Generation) -> dict[str, str]:
    tags = {
        "zero.tag": generation.tag,
        # Tells runs of another history of the lineage: `backfill` does not delete those.
        "zero.ledger": line_digest(generation.read_entry()),
        "mlflow.source.name": generation.tag,
        "mlflow.source.type": "PROJECT",
    }
    if generation.read_entry().decision is not None:
        commit = _attestation(generation).dependencies["source"].digest["gitCommit"]
        tags |= {"zero.commit": commit, "mlflow.source.git.commit": commit}
    return tags


def _stage_points(generation: Generation) -> dict[str, list[MetricPoint]]:
    """Metrics of each stage, in the order of the stages."""
    decision = generation.read_entry().decision
    assert decision is not None, "generation 0 has no stages"
    curve, training = training_curve(generation), training_numbers(generation)
    curves = {point.name for point in curve} | {"step"}
    # The curve has its metrics at every step already; only the others are added at the last step.
    finals = {name: value for name, value in training.items() if name not in curves}
    return {
        "selfplay": _at(generation.number, selfplay_numbers(generation)),
        "training": [*curve, *_at(int(training["step"]), finals)],
        "gating": _at(generation.number, match_numbers(decision)),
    }


def _short(tag: str) -> str:
    """Name of the run and alias of the network: the tag without the lineage."""
    return tag.rpartition("/")[2]


def _at(step: int, numbers: Mapping[str, float]) -> list[MetricPoint]:
    return [MetricPoint(name, float(value), step) for name, value in numbers.items()]


def _version(generation: Generation, entry: LedgerEntry, weights: FileRef, folder: str, expected: str) -> ModelVersion:
    if weights.sha256 != expected:
        raise StorageError(
            f"{folder} of {generation.tag} has network {weights.sha256[:12]}, but the ledger has {expected[:12]}; "
            "run `dvc checkout`"
        )
    params = generation.read_params()
    rules = rules_of(params.game)
    tag = generation_tag(entry.lineage, entry.generation)
    tags = {"generation": str(entry.generation), "decision": decision_word(entry), "git_tag": tag}
    if entry.decision is not None:
        tags["score"] = f"{entry.decision.match.score:.4f}"
    # A registered player must run on any machine and with any batch size, so its default is PyTorch on the CPU.
    profile = params.profile.model_copy(update={"device": "cpu", "backend": "torch"})
    return ModelVersion(
        generation=entry.generation,
        alias=_short(tag),
        tags=tags | {"sha256": weights.sha256},
        note=model_card(generation, entry, weights),
        weights=weights,
        weights_path=generation.data_path(folder, weights.path),
        config=profile.model_dump(mode="json"),
        requirements=_requirements(generation),
        input_shape=(NUM_PLANES, rules.rows, rules.columns),
        num_actions=rules.num_actions,
    )


def flatten(section: BaseModel) -> dict[str, str]:
    """All parameters as flat strings, such as `{"training.batch_size": "256"}`."""
    flat: dict[str, str] = {}

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict | list):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value):
                visit(f"{name}.{key}" if name else str(key), child)
        else:
            flat[name] = str(value)

    visit("", section.model_dump(mode="json"))
    return flat


def _flat_numbers(tree: dict[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat_numbers(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            yield prefix + name, float(value)


def _unreadable(generation: Generation, path: str) -> StorageError:
    return StorageError(f"cannot read {path} of {generation.tag}; restore it with `git checkout` at the tag")


def _damaged(generation: Generation, path: str) -> StorageError:
    return StorageError(f"{path} of {generation.tag} is damaged; restore it with `git checkout` at the tag")

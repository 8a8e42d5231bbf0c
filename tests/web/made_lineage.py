"""A lineage in git with files in the real formats, made by one `git fast-import` without games or training."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.made_games import made_game_set, made_origin, made_records
from tests.made_generations import (
    ZEROS,
    commit_stream,
    made_decision,
    made_entry,
    made_stage_costs,
    put_folder,
    signed_attestation,
)
from tests.parameters import smoke_text
from zero.config.params import params_digest, parse_params
from zero.games.rules import rules_of
from zero.record.costs import GenerationCosts, write_note
from zero.storage.files import canonical_json, canonical_line, sha256_bytes
from zero.storage.layout import LEDGER_FILE, PROVENANCE_FILE
from zero.storage.manifests import LedgerEntry, PromotionDecision, Source

NUM_GAMES = 6
START_SECONDS = 1_790_000_000
PARAMS_TEXT = smoke_text()
PARAMS = parse_params(PARAMS_TEXT)
PARAMS_DIGEST = params_digest(PARAMS)
CURVE = (
    "step,loss,policy_loss,value_loss,constant_value_loss,saturated_values,value_deviation,policy_accuracy,"
    "policy_entropy,learning_rate,policy_gradient_norm,value_gradient_norm"
)


def make_project(home: Path) -> Path:
    """An empty project."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(home)], check=True)
    return home


def make_lineage(home: Path, name: str, kinds: Sequence[str], source: str = "") -> Path:
    """A lineage in the workspace of a project.

    Args:
      home: the project's folder.
      name: name of the lineage.
      kinds: of each generation `start`, `branch`, `promoted`, `refused`, or `rollback`, which is to two generations
        before. The last one has games, costs and an attestation.
      source: tag from which a branch begins.
    """
    workspace = home / ".zero/workspaces" / name
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(workspace)], check=True)
    ledger: list[LedgerEntry] = []
    text = stream = b""
    first = int(source.rpartition("-")[2]) if source else 0
    for number, kind in enumerate(kinds, first):
        is_last = number == first + len(kinds) - 1
        files = _files(home, name, number, kind, is_last)
        ledger.append(_entry(name, number, kind, ledger, source))
        text += canonical_line(ledger[-1])
        stream += commit_stream(name, number, files | {LEDGER_FILE: text}, _time(number))
    subprocess.run(["git", "-C", str(workspace), "fast-import", "--quiet"], input=stream, check=True)
    subprocess.run(["git", "-C", str(workspace), "checkout", "--quiet", f"lineage/{name}"], check=True)
    stage = made_stage_costs(seconds=3700.0, cpu_seconds=7200.0, games=NUM_GAMES, evaluations=900, workers=("one",))
    number = ledger[-1].generation
    costs = GenerationCosts(lineage=name, generation=number, stages={"selfplay": stage, "training": stage})
    write_note(workspace, f"{name}/gen-{number:04d}", costs)
    return workspace


def advance(home: Path, name: str) -> None:
    """Adds a refused generation to a lineage."""
    workspace = home / ".zero/workspaces" / name
    ledger = [LedgerEntry.model_validate_json(line) for line in (workspace / LEDGER_FILE).read_bytes().splitlines()]
    number = ledger[-1].generation + 1
    files = _files(home, name, number, "refused", False)
    ledger.append(_entry(name, number, "refused", ledger, ""))
    files[LEDGER_FILE] = b"".join(canonical_line(entry) for entry in ledger)
    stream = commit_stream(name, number, files, _time(number), f"refs/tags/{name}/gen-{number - 1:04d}")
    subprocess.run(["git", "-C", str(workspace), "fast-import", "--quiet"], input=stream, check=True)
    subprocess.run(["git", "-C", str(workspace), "reset", "--quiet", "--hard"], check=True)


def _time(number: int) -> int:
    """Time of the commit of a generation, seconds since 1970."""
    return START_SECONDS + 600 * number


def weights(name: str, number: int) -> str:
    """SHA-256 of the network of a generation."""
    return sha256_bytes(f"{name} {number}".encode())


def _entry(name: str, number: int, kind: str, ledger: Sequence[LedgerEntry], source: str) -> LedgerEntry:
    before = ledger[-1] if ledger else None
    champion, champion_generation = (before.champion, before.champion_generation) if before else (weights(name, 0), 0)
    decision = None
    if kind in ("promoted", "refused"):
        decision = _decision(name, number, kind == "promoted", champion)
        if decision.promoted:
            champion, champion_generation = decision.challenger, number
    elif kind == "rollback":
        source = f"{name}/gen-{number - 2:04d}"
    return made_entry(
        number,
        lineage=name,
        kind="decision" if decision else kind,
        decision=decision,
        source=Source(tag=source, commit="0" * 40, line="0" * 64) if source else None,
        champion=champion,
        champion_generation=champion_generation,
        trainee=decision.challenger if decision else champion,
        params_digest=PARAMS_DIGEST,
        lock_digest=sha256_bytes(b""),
        previous=sha256_bytes(canonical_line(before)) if before else ZEROS,
    )


def _decision(name: str, number: int, promoted: bool, champion: str) -> PromotionDecision:
    return made_decision(
        *(name, number, promoted, 14 if promoted else 6, 20, weights(name, number), champion),
        interval=(0.48, 0.85) if promoted else (0.15, 0.52),
    )


def _files(home: Path, name: str, number: int, kind: str, is_last: bool) -> dict[str, bytes]:
    files = {"params.yaml": PARAMS_TEXT.encode()}
    if kind not in ("promoted", "refused"):
        return files
    calibration = {
        "threshold": -0.85, "num_games": 600, "would_resign": 100, "would_have_won": 4, "false_positive_rate": 0.04,
        "interval": [0.016, 0.098],
    }  # fmt: skip
    selfplay = {
        "num_games": NUM_GAMES,
        "num_positions": 150,
        "unique_games": NUM_GAMES,
        "mean_length": 25.0,
        "black_wins": 3,
        "white_wins": 2,
        "draws": 1,
        "ended": {"passes": 4, "resignation": 2},
        "mean_abs_margin": 3.5,
        "root_value_error": 0.8,
        "target_positions": 150,
        "resignation": {"resigned_games": 2, "target": 0.05, "used": calibration, "following": calibration},
    }
    value_losses = [1.0 - 0.04 * line for line in range(10)]
    lines = [
        f"{200 * (number - 1) + 20 * (line + 1)},{3 + value},3,{value},0.99,0.02,0.5,0.25,1.5,0.05,0.1,0.2"
        for line, value in enumerate(value_losses)
    ]
    health = {"verdict": "healthy", "explained_variance": 0.31, "findings": []}
    last = dict(zip(CURVE.split(","), map(float, lines[-1].split(",")), strict=True))
    files |= {
        "metrics/selfplay.json": canonical_json(selfplay),
        "metrics/training.json": canonical_json(last | {"health": health, "window_games": 36}),
        "plots/training.csv": "\n".join([CURVE, *lines, ""]).encode(),
    }
    if is_last:
        outs = [_write_games(home, name, number, "data/games", 0), _write_games(home, name, number, "data/match", 1)]
        files["dvc.lock"] = yaml.safe_dump({"schema": "2.0", "stages": {"play": {"outs": outs}}}).encode()
        files[PROVENANCE_FILE] = signed_attestation(number, name, weights(name, number))
    return files


def _write_games(home: Path, name: str, number: int, folder: str, seed: int) -> dict[str, object]:
    """Writes games into DVC's cache, and returns the output of their stage."""
    records = made_records(rules_of(PARAMS.game), NUM_GAMES, seed)
    games, shards = made_game_set(made_origin("selfplay", number, name), [records])
    return {"path": folder, "hash": "md5", "md5": put_folder(home, games, shards)}

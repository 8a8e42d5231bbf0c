"""Paths inside a lineage's workspace, relative to it, each defined once.

Names only: this module imports no library, so that a reader of a manifest does not load torch.
"""

from pathlib import Path

from zero.config.settings import STATE_FOLDER

STATE_DIR = "state"
CHAMPION_DIR = "state/champion"
PLAYER_DIR = "state/champion/selfplay"
"""The player of the games with `selfplay.overlap`; in the champion's folder, so that DVC tracks both together."""
TRAINEE_DIR = "state/trainee"
REPLAY_DIR = "state/replay"
STATE_OUTS = (CHAMPION_DIR, TRAINEE_DIR, REPLAY_DIR)
"""Folders that a generation starts from, tracked by DVC."""
GENERATION_FILE = "state/generation.json"

GAMES_DIR = "data/games"
WINDOW_DIR = "data/window"
CHALLENGER_DIR = "models/challenger"
MATCH_DIR = "data/match"

WEIGHTS_FILE = "weights.safetensors"
"""In the folder of a checkpoint or champion: the player."""
OPTIMIZER_FILE = "optimizer.safetensors"
RAW_WEIGHTS_FILE = "raw-weights.safetensors"
"""In the challenger's folder: the weights that training continues from, if they are not the player's."""
AVERAGE_FILE = "average.safetensors"
"""In the challenger's folder, only after a restart: the moving average that training continues from."""

METRICS_DIR = "metrics"
SELFPLAY_METRICS = "metrics/selfplay.json"
REPLAY_METRICS = "metrics/replay.json"
TRAINING_METRICS = "metrics/training.json"
GATING_METRICS = "metrics/gating.json"
VERIFICATION_METRICS = "metrics/verification.json"
METRICS = (SELFPLAY_METRICS, REPLAY_METRICS, TRAINING_METRICS, GATING_METRICS, VERIFICATION_METRICS)
PLOTS_DIR = "plots"
TRAINING_CURVE = "plots/training.csv"

LEDGER_FILE = "record/ledger.jsonl"
PROVENANCE_FILE = "record/provenance.intoto.jsonl"
KEY_FILE = "record/signing-key.pub"

CONSTRAINTS_FILE = "constraints.txt"
PIPELINE_FILE = "dvc.yaml"
DVC_LOCK_FILE = "dvc.lock"
COSTS_DIR = f"{STATE_FOLDER}/costs"
QUARANTINE_DIR = f"{STATE_FOLDER}/quarantine"


def workspace_dir(home: Path, lineage: str) -> Path:
    """Folder of a lineage's workspace, which may not exist yet."""
    return home / STATE_FOLDER / "workspaces" / lineage

"""Paths relative to a lineage's workspace, and the path of the workspace; each is defined once.

Names only: this module imports no library, so that a process which needs a path does not load torch.
"""

from pathlib import Path

from zero.config.settings import STATE_FOLDER

CHAMPION_DIR = "state/champion"
TRAINEE_DIR = "state/trainee"
OLD_WINDOW_DIR = "state/replay"
STATE_DIRS = (CHAMPION_DIR, TRAINEE_DIR, OLD_WINDOW_DIR)
"""What a generation starts from. DVC tracks each by a file beside it, such as `state/champion.dvc`."""
RESTORE_STATE = (
    f"restore it in the workspace with `git checkout HEAD -- state && dvc checkout --force {' '.join(STATE_DIRS)}`"
)
"""Remedy in messages. It does not restore `dvc.lock`, because commits of a start, rollback or branch lack that file."""
PLAYER_DIR = "state/champion/selfplay"
"""The network that plays with `selfplay.overlap`: in the champion's folder, so that DVC tracks both as one output."""
GENERATION_FILE = "state/generation.json"

GAMES_DIR = "data/games"
WINDOW_DIR = "data/window"
CHALLENGER_DIR = "models/challenger"
MATCH_DIR = "data/match"
DATA_DIRS = (GAMES_DIR, WINDOW_DIR, CHALLENGER_DIR, MATCH_DIR)
"""What the stages of a generation write, in their order."""
SHARD_DIRS = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
"""Folder of the shards of each stage that plays games."""

WEIGHTS_FILE = "weights.safetensors"
"""In the folder of a checkpoint or champion: the weights of the player."""
OPTIMIZER_FILE = "optimizer.safetensors"
"""In the folder of a checkpoint: the optimiser's state (SGD: momentum buffers; Adam: both moments and the step)."""
RAW_WEIGHTS_FILE = "raw-weights.safetensors"
"""In the challenger's folder: the weights from which training continues, if they are not the player's."""
AVERAGE_FILE = "average.safetensors"
"""In the challenger's folder, only after a restart: the moving average from which training continues."""

SELFPLAY_METRICS = "metrics/selfplay.json"
REPLAY_METRICS = "metrics/replay.json"
TRAINING_METRICS = "metrics/training.json"
GATING_METRICS = "metrics/gating.json"
VERIFICATION_METRICS = "metrics/verification.json"
METRICS_FILES = (SELFPLAY_METRICS, REPLAY_METRICS, TRAINING_METRICS, GATING_METRICS, VERIFICATION_METRICS)
TRAINING_CURVE = "plots/training.csv"
GAME_LENGTHS, GAME_VALUES = "plots/lengths.csv", "plots/values.csv"

LEDGER_FILE = "record/ledger.jsonl"
PROVENANCE_FILE = "record/provenance.intoto.jsonl"
KEY_FILE = "record/signing-key.pub"

CONSTRAINTS_FILE = "constraints.txt"
PIPELINE_FILE = "dvc.yaml"
DVC_LOCK = "dvc.lock"
COSTS_DIR = f"{STATE_FOLDER}/costs"
QUARANTINE_DIR = f"{STATE_FOLDER}/quarantine"
DVC_CACHE_DIR = f"{STATE_FOLDER}/dvc-cache"
"""In the project: DVC's cache, which all workspaces share."""


def workspaces_dir(home: Path) -> Path:
    """Folder of the workspaces of a project, which may not exist yet."""
    return home / STATE_FOLDER / "workspaces"


def workspace_dir(home: Path, lineage: str) -> Path:
    """Folder of a lineage's workspace, which may not exist yet."""
    return workspaces_dir(home) / lineage

"""Where things lie in a lineage's workspace, as far as several modules must agree. Nothing but names.

A module of names alone brings in no library: who asks for a training need not have torch in memory.
"""

from pathlib import Path

from zero.config.settings import STATE_FOLDER

STATE_DIR = "state"
GENERATION_FILE = "generation.json"
CHAMPION_DIR = "state/champion"
PLAYER_DIR = "state/champion/selfplay"
"""Who plays with `selfplay.overlap`: inside the champion's folder, so that what depends on that depends on this."""
TRAINEE_DIR = "state/trainee"
REPLAY_DIR = "state/replay"
GAMES_DIR = "data/games"
WINDOW_DIR = "data/window"
MATCH_DIR = "data/match"
CHALLENGER_DIR = "models/challenger"
RAW_WEIGHTS_FILE = "raw-weights.safetensors"
"""In the challenger's folder: the weights that training goes on from, if they are not the player's."""
AVERAGE_FILE = "average.safetensors"
"""In the challenger's folder, only after a restart: the moving average that training goes on from."""
TRAINING_METRICS = "metrics/training.json"
TRAINING_CURVE = "plots/training.csv"


def workspace_dir(home: Path, lineage: str) -> Path:
    """Folder of a lineage's workspace, whether it is there or not."""
    return home / STATE_FOLDER / "workspaces" / lineage

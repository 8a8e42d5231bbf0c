"""Stage 1, self-play: the champion plays against itself. Reads `state/champion`, writes `data/games`."""

from pathlib import Path

import numpy as np

from zero.artifacts import (
    Champion,
    GameSet,
    GenerationId,
    Manifest,
    Origin,
    checked_path,
    read_manifest,
    write_manifest,
)
from zero.params import Params, load_params, params_digest
from zero.shards.collect import collect_games
from zero.shards.executor import Progress
from zero.shards.records import GameColumns
from zero.shards.spec import ShardSpec, engine_fingerprint, plan_shards
from zero.storage import Store

GAMES_DIR = "data/games"
METRICS_FILE = "selfplay.json"


class SelfplayMetrics(Manifest):
    """`metrics/selfplay.json`."""

    num_games: int
    num_positions: int
    unique_games: int
    mean_length: float
    black_wins: int
    white_wins: int
    draws: int
    ended: dict[str, int]
    """Games by how they ended."""
    mean_abs_margin: float
    """Points a game was won by."""
    root_value_error: float
    """Mean squared error of the root values against the outcomes."""


def plan(folder: Path, store: Store) -> list[ShardSpec]:
    """The stage's shards; puts the champion's weights into the store, where the workers find them."""
    params = load_params(folder)
    generation = read_manifest(folder / "state", GenerationId, "generation.json")
    champion = read_manifest(folder / "state/champion", Champion)
    digest = store.put_weights(checked_path(champion.weights, folder / "state/champion").read_bytes())
    return plan_shards(params, "selfplay", params.selfplay, generation.number, (digest,))


def run(folder: Path, store: Store, progress: Progress | None = None) -> GameSet:
    """Runs the stage in a lineage's workspace."""
    params = load_params(folder)
    specs = plan(folder, store)
    origin = _origin(params, read_manifest(folder / "state", GenerationId, "generation.json"), specs)
    game_set, games = collect_games(folder, params, specs, store, origin, folder / GAMES_DIR, progress)
    write_manifest(folder / "metrics", metrics_of(games), METRICS_FILE)
    return game_set


def metrics_of(games: GameColumns) -> SelfplayMetrics:
    """What a person wants to know of a set of games."""
    lengths = np.diff(games.move_offsets)
    sequences = {games.actions[a:b].tobytes() for a, b in zip(games.move_offsets, games.move_offsets[1:], strict=False)}
    mover = np.concatenate([np.where(np.arange(length) % 2 == 0, 1, -1) for length in lengths])
    targets = np.repeat(games.outcome, lengths) * mover
    return SelfplayMetrics(
        num_games=games.num_games,
        num_positions=games.num_positions,
        unique_games=len(sequences),
        mean_length=float(lengths.mean()),
        black_wins=int((games.outcome > 0).sum()),
        white_wins=int((games.outcome < 0).sum()),
        draws=int((games.outcome == 0).sum()),
        ended={name: games.end.count(name) for name in sorted(set(games.end))},
        mean_abs_margin=float(np.abs(games.margin.astype(np.float64)).mean()),
        root_value_error=float(((games.root_values.astype(np.float64) - targets) ** 2).mean()),
    )


def _origin(params: Params, generation: GenerationId, specs: list[ShardSpec]) -> Origin:
    return Origin(
        stage="selfplay",
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, "selfplay"),
        engine=engine_fingerprint("selfplay"),
        inputs={"champion": specs[0].weights[0]},
    )

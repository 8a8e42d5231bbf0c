"""Stage 4, gating: the challenger plays the champion, and the better player stays.

Reads `models/challenger` and `state/champion`, writes `data/match` and `metrics/gating.json`. Players choose the most
visited move, of a Gumbel root the best of those, without noise; the challenger has Black in the games of even number.
"""

from pathlib import Path

import numpy as np

from zero.config.params import load_params, params_digest
from zero.data.records import GameColumns
from zero.shards.collect import collect_games
from zero.shards.executor import Progress
from zero.shards.spec import ShardSpec, code_digest, plan_shards
from zero.statistics import wilson_interval
from zero.storage.files import checked_path, read_manifest, write_manifest
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR, GATING_METRICS, GENERATION_FILE, MATCH_DIR
from zero.storage.manifests import Champion, Checkpoint, Colours, GenerationId, MatchResult, Origin, PromotionDecision
from zero.storage.store import Store


def plan(folder: Path, store: Store) -> list[ShardSpec]:
    """The stage's shards; puts both players' weights into the store, where the workers find them."""
    params = load_params(folder)
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    challenger = read_manifest(folder / CHALLENGER_DIR, Checkpoint)
    champion = read_manifest(folder / CHAMPION_DIR, Champion)
    weights = (
        store.put_weights(checked_path(challenger.weights, folder / CHALLENGER_DIR).read_bytes()),
        store.put_weights(checked_path(champion.weights, folder / CHAMPION_DIR).read_bytes()),
    )
    return plan_shards(params, "gating", params.gating, generation.number, weights)


def run(folder: Path, store: Store, progress: Progress | None = None) -> PromotionDecision:
    """Runs the stage in a lineage's workspace."""
    params = load_params(folder)
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    specs = plan(folder, store)
    challenger, champion = specs[0].weights
    origin = Origin(
        stage="gating",
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, "gating"),
        engine=code_digest("gating"),
        inputs={"challenger": challenger, "champion": champion},
    )
    collected = collect_games(folder, params, specs, store, origin, folder / MATCH_DIR, progress)
    match = match_result(collected.games)
    decision = PromotionDecision(
        lineage=generation.lineage,
        generation=generation.number,
        promoted=decide(match, params.gating.threshold),
        threshold=params.gating.threshold,
        match=match,
        challenger=challenger,
        champion=champion,
    )
    write_manifest(folder, decision, GATING_METRICS)
    return decision


def decide(match: MatchResult, threshold: float) -> bool:
    """True where the challenger becomes champion: its score reaches the threshold."""
    games = match.wins + match.losses + match.draws
    return 2 * match.wins + match.draws >= 2 * threshold * games - 1e-9


def match_result(games: GameColumns) -> MatchResult:
    """Counts a match; the challenger had Black in the games of even number."""
    black = games.game % 2 == 0
    result = np.where(black, games.outcome, -games.outcome)
    sequences = {games.actions[a:b].tobytes() for a, b in zip(games.move_offsets, games.move_offsets[1:], strict=False)}
    wins, losses, draws = (int((result == r).sum()) for r in (1, -1, 0))
    score = (wins + draws / 2) / games.num_games
    return MatchResult(
        wins=wins,
        losses=losses,
        draws=draws,
        as_black=_colours(result[black]),
        as_white=_colours(result[~black]),
        unique_games=len(sequences),
        score=score,
        interval=wilson_interval(score, games.num_games),
        mean_length=float(np.diff(games.move_offsets).mean()),
    )


def _colours(result: np.ndarray) -> Colours:
    wins, losses, draws = (int((result == r).sum()) for r in (1, -1, 0))
    return Colours(wins=wins, losses=losses, draws=draws)

"""Stage `gating`: the challenger plays a match against the champion, and the result decides the promotion.

Reads `models/challenger` and `state/champion`; writes `data/match` and `metrics/gating.json`. Moves are chosen without
noise: the most visited move, or with a Gumbel root the move that it ranks highest. The challenger plays Black in the
games of even number.
"""

from typing import Final

import numpy as np

from zero.data.records import GameColumns
from zero.stages.collect import collect_games
from zero.stages.executor import Progress
from zero.stages.inputs import Inputs
from zero.stages.spec import ShardSpec, plan_shards
from zero.statistics import wilson_interval
from zero.storage.files import checked_bytes, write_manifest
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR, GATING_METRICS, MATCH_DIR
from zero.storage.manifests import Colours, MatchResult, PromotionDecision
from zero.storage.store import Store

STAGE: Final = "gating"


def run(inputs: Inputs, store: Store, progress: Progress | None = None) -> PromotionDecision:
    """Plays the match of a generation in its workspace, and decides whether the challenger is promoted.

    Args:
      inputs: what the stages read of the workspace.
      store: finished shards, which are not played again, and weights.
      progress: called with the number of finished games and the number of games.

    Raises:
      StorageError: a player is missing or corrupt, or a shard breaks the data contract each time it is played.
      WorkerError: the process that played a shard died repeatedly.
      ZeroError: this machine cannot play the shards, for example because its code digest differs.
    """
    threshold = inputs.params.gating.threshold
    specs = plan(inputs, store)
    challenger, champion = specs[0].weights
    origin = inputs.origin(STAGE, {"challenger": challenger, "champion": champion})
    collected = collect_games(inputs, specs, store, origin, inputs.folder / MATCH_DIR, progress)
    match = match_result(collected.games)
    decision = PromotionDecision(
        lineage=inputs.generation.lineage,
        generation=inputs.generation.number,
        promoted=decide(match, threshold),
        threshold=threshold,
        match=match,
        challenger=challenger,
        champion=champion,
    )

    # Last: `zero advance` records a generation that has this file.
    write_manifest(inputs.folder, decision, GATING_METRICS)
    return decision


def plan(inputs: Inputs, store: Store) -> list[ShardSpec]:
    """Specifications of the match's shards. Uploads the weights of both players to the store for the workers.

    Raises:
      StorageError: a player is missing or corrupt.
    """
    params, number = inputs.params, inputs.generation.number
    challenger = store.put_weights(checked_bytes(inputs.challenger.weights, inputs.folder / CHALLENGER_DIR))
    champion = store.put_weights(checked_bytes(inputs.champion.weights, inputs.folder / CHAMPION_DIR))
    return plan_shards(params, STAGE, number, (challenger, champion))


def decide(match: MatchResult, threshold: float) -> bool:
    """True if the challenger's score (wins plus half the draws, over the games) reaches the threshold."""
    # In half points, so that the left side is exact; the tolerance is for thresholds such as 0.7, which are not.
    return 2 * match.wins + match.draws >= 2 * threshold * match.num_games - 1e-9


def match_result(games: GameColumns) -> MatchResult:
    """Counts a match from the challenger's point of view."""
    # Player 0 is the challenger (see `plan`), and has Black in games of even number.
    is_black = games.game % 2 == 0
    result = np.where(is_black, games.outcome, -games.outcome)
    sequences = {games.actions[a:b].tobytes() for a, b in zip(games.move_offsets, games.move_offsets[1:], strict=False)}
    total = Colours.counted(result)
    score = (total.wins + total.draws / 2) / games.num_games
    return MatchResult(
        wins=total.wins,
        losses=total.losses,
        draws=total.draws,
        as_black=Colours.counted(result[is_black]),
        as_white=Colours.counted(result[~is_black]),
        unique_games=len(sequences),
        score=score,
        interval=wilson_interval(score, games.num_games),
        mean_length=float(np.diff(games.move_offsets).mean()),
    )

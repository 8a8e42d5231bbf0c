"""What the specification of a shard says about its games, for `zero.data.validation` to check them."""

from zero.data.records import Limits
from zero.data.validation import Terms
from zero.games.rules import rules_of
from zero.shards.spec import ShardSpec


def terms_of(spec: ShardSpec) -> Terms:
    """The terms that a shard was played on."""
    return Terms(
        kind=spec.kind,
        weights=spec.weights,
        seed=spec.seed,
        generation=spec.generation,
        first_game=spec.first_game,
        num_games=spec.num_games,
        num_simulations=spec.num_simulations,
        temperature_moves=spec.temperature_moves,
        forced_playouts=spec.forced_playouts,
        full_search_fraction=spec.full_search_fraction,
        calibration_fraction=spec.calibration_fraction,
        resign_threshold=spec.resign_threshold,
        tree_reuse=spec.search.tree_reuse,
        random_symmetry=spec.search.random_symmetry,
        gumbel=spec.search.root == "gumbel",
        root_noise=spec.kind == "selfplay" and (spec.search.root == "gumbel" or spec.dirichlet_fraction > 0.0),
    )


def limits_of(spec: ShardSpec) -> Limits:
    """What the shard of a specification can hold: each game its longest, each move a target for every action."""
    rules = rules_of(spec.game)
    return Limits(spec.num_games, spec.num_games * rules.max_moves * (rules.num_actions + 1))

"""What a shard's specification implies about its file, for `zero.data.validation` and `read_records` to check."""

from zero.data.records import Limits
from zero.data.validation import ExpectedProperties
from zero.games.rules import rules_of
from zero.shards.spec import ShardSpec


def expected_properties(spec: ShardSpec) -> ExpectedProperties:
    """The properties that the games of a shard must have."""
    return ExpectedProperties(
        kind=spec.kind,
        weights=spec.weights,
        seed=spec.seed,
        generation=spec.generation,
        first_game=spec.first_game,
        num_games=spec.num_games,
        search=spec.search,
        play=spec.play,
        resign_threshold=spec.resign_threshold,
    )


def size_limits(spec: ShardSpec) -> Limits:
    """The largest size of a shard: all games have maximal length, and every move has a target for every action."""
    rules = rules_of(spec.game)
    return Limits(spec.num_games, spec.num_games * rules.max_moves * (rules.num_actions + 1))

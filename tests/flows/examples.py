"""Small values of the types that flows pass on."""

from flows.reports import RecordedGeneration
from tests.made_generations import made_match, made_stage_costs
from zero.config.params import Params, parse_params, preset_text
from zero.record.costs import GenerationCosts
from zero.stages.spec import ShardReceipt, ShardSpec
from zero.storage.manifests import Colours, PromotionDecision

DIGESTS = ("a" * 64, "b" * 64, "c" * 64)


def smoke_params() -> Params:
    """The `smoke` preset."""
    return parse_params(preset_text("smoke"))


def decision(promoted: bool = True) -> PromotionDecision:
    """A match of 400 games, won or not."""
    match = made_match(
        *(230, 160, 10),
        as_black=Colours(wins=130, losses=66, draws=4),
        as_white=Colours(wins=100, losses=94, draws=6),
        unique_games=397,
        interval=(0.5387, 0.6347),
        mean_length=71.25,
    )
    return PromotionDecision(
        lineage="tiny",
        generation=3,
        promoted=promoted,
        threshold=0.55,
        match=match,
        challenger=DIGESTS[0],
        champion=DIGESTS[1],
    )


def recorded(mlflow_url: str | None) -> RecordedGeneration:
    """What the registry says of it."""
    return RecordedGeneration(
        lineage="tiny", generation=3, tag="tiny/gen-0003", commit="d" * 40, promoted=True, mlflow_url=mlflow_url
    )


def costs() -> GenerationCosts:
    """Its costs: two stages."""
    nothing = made_stage_costs(seconds=50.0, cpu_seconds=60.0)
    games = nothing.model_copy(update={"seconds": 100.0, "cpu_seconds": 180.0, "games": 24, "evaluations": 2400})
    return GenerationCosts(lineage="tiny", generation=3, stages={"gating": nothing, "selfplay": games})


def spec(first_game: int = 0) -> ShardSpec:
    """A shard of 12 games."""
    params = smoke_params()
    return ShardSpec(
        kind="selfplay",
        game=params.game,
        search=params.search,
        play=params.selfplay.play,
        weights=(DIGESTS[0],),
        seed=1,
        generation=1,
        first_game=first_game,
        num_games=12,
        resign_threshold=-1.0,
        device=params.profile,
        engine=DIGESTS[1],
        lock_file=DIGESTS[2],
        profile={"device": "cpu"},
    )


def receipt(of: ShardSpec) -> ShardReceipt:
    """Its receipt."""
    return ShardReceipt(
        key=of.key(),
        sha256=DIGESTS[2],
        kind=of.kind,
        first_game=of.first_game,
        num_games=of.num_games,
        num_evaluations=900,
        worker="here:42",
        begun=1_700_000_000.0,
        seconds=1.5,
        cpu_seconds=1.4,
        gpu_seconds=0.0,
        pid=42,
    )

"""Matches, ledger entries, attestations and costs for tests that need only some of their fields."""

from typing import Any

from zero.record.costs import StageCosts
from zero.record.provenance import (
    BUILD_TYPE,
    Attestation,
    BuildDefinition,
    ExternalParameters,
    InternalParameters,
    Metadata,
    Predicate,
    Resource,
    RunDetails,
)
from zero.storage.manifests import Colours, LedgerEntry, MatchResult

ZEROS = "0" * 64


def made_match(wins: int, losses: int, draws: int = 0, **fields: Any) -> MatchResult:
    """A match in which each colour has half of the games; `fields` change the rest."""
    games = wins + losses + draws
    half = Colours(wins=wins // 2, losses=losses // 2, draws=draws // 2)
    values: dict[str, Any] = {
        "as_black": half,
        "as_white": half,
        "unique_games": games,
        "score": (wins + draws / 2) / games,
        "interval": (0.0, 1.0),
        "mean_length": 1.0,
    }
    return MatchResult(wins=wins, losses=losses, draws=draws, **(values | fields))


def made_entry(generation: int, **fields: Any) -> LedgerEntry:
    """The ledger entry of a start without digests; `fields` change it."""
    digests = ("provenance", "champion", "trainee", "params_digest", "lock_digest", "previous")
    values: dict[str, Any] = dict.fromkeys(digests, ZEROS) | {
        "lineage": "go9",
        "kind": "start",
        "decision": None,
        "source": None,
        "champion_generation": generation,
    }
    return LedgerEntry(generation=generation, **(values | fields))


def made_stage_costs(**fields: Any) -> StageCosts:
    """Costs of a stage in which nothing was counted but `fields`."""
    counts = ("seconds", "cpu_seconds", "gpu_seconds", "games", "evaluations", "shards", "shards_without_receipt")
    values: dict[str, Any] = dict.fromkeys(counts, 0) | {"workers": ()}
    return StageCosts(**(values | fields))


def made_attestation(
    generation: int, lineage: str = "go9", challenger: str = "a" * 64, **parameters: Any
) -> Attestation:
    """The attestation of a decision."""
    return Attestation(
        subject=(Resource(name="models/challenger/weights.safetensors", digest={"sha256": challenger}),),
        predicate=Predicate(
            build_definition=BuildDefinition(
                build_type=BUILD_TYPE.format(kind="decision"),
                external_parameters=ExternalParameters(lineage=lineage, generation=generation, parameters=parameters),
                internal_parameters=InternalParameters(
                    engine={"selfplay": "b" * 64}, profile={"device": "cpu", "isa": "AVX2"}, lock="c" * 64
                ),
                resolved_dependencies=(
                    Resource(name="source", digest={"gitCommit": f"{generation:040x}"}),
                    Resource(
                        name="data/games/shard-0000.parquet", digest={"sha256": "e" * 64}, annotations={"key": "f"}
                    ),
                ),
            ),
            run_details=RunDetails(
                metadata=Metadata(invocation_id=f"{lineage}/gen-{generation:04d}"),
                byproducts=(Resource(name="data/window/manifest.json", digest={"sha256": "b" * 64}),),
            ),
        ),
    )

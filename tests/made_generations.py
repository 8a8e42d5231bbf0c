"""Parts of recorded generations in the real formats, made without games or training."""

import json
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zero.record.costs import StageCosts
from zero.record.generation import Generation
from zero.record.history import Line
from zero.record.ledger import read_ledger
from zero.record.objects import WorkTreeFiles
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
    attestation_bytes,
    sign,
)
from zero.storage.files import canonical_json, canonical_line, write_atomic
from zero.storage.manifests import Colours, LedgerEntry, Manifest, MatchResult, PromotionDecision

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
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


def made_decision(
    lineage: str,
    number: int,
    promoted: bool,
    wins: int,
    num_games: int,
    challenger: str,
    champion: str,
    interval: tuple[float, float] = (0.1, 0.9),
) -> PromotionDecision:
    """A decision after a match without draws, in which the colours were equally good."""
    match = made_match(wins, num_games - wins, unique_games=num_games - 1, interval=interval, mean_length=31.25)
    return PromotionDecision(
        lineage=lineage,
        generation=number,
        promoted=promoted,
        threshold=0.55,
        match=match,
        challenger=challenger,
        champion=champion,
    )


def signed_attestation(generation: int, lineage: str, challenger: str, **parameters: Any) -> bytes:
    """That attestation in its signed envelope."""
    return sign(attestation_bytes(made_attestation(generation, lineage, challenger, **parameters)), KEY)


def cache_path(home: Path, digest: str) -> Path:
    """Path of an object in DVC's cache."""
    return home / ".zero/dvc-cache/files/md5" / digest[:2] / digest[2:]


def put_object(home: Path, content: bytes, end: str = "") -> str:
    """Adds an object to DVC's cache, and returns its MD5."""
    digest = md5(content, usedforsecurity=False).hexdigest() + end
    write_atomic(cache_path(home, digest), content)
    return digest


def put_folder(home: Path, manifest: Manifest, files: Mapping[str, bytes]) -> str:
    """Adds a folder to DVC's cache, and returns the MD5 of its list."""
    content = {"manifest.json": canonical_json(manifest), **files}
    listing = [{"md5": put_object(home, data), "relpath": name} for name, data in sorted(content.items())]
    return put_object(home, json.dumps(listing).encode(), ".dir")


def commit_stream(lineage: str, number: int, files: Mapping[str, bytes], seconds: int, parent: str = "") -> bytes:
    """A tagged commit on the lineage's branch, for `git fast-import`. `parent`: a ref, or the branch in the stream."""
    branch = f"refs/heads/lineage/{lineage}"
    head = f"commit {branch}\ncommitter zero <zero@localhost> {seconds} +0000\ndata 4\nmade\n"
    parts = [(head + (f"from {parent}^0\n" if parent else "")).encode()]
    for path, content in files.items():
        parts.append(f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n")
    tag = f"reset refs/tags/{lineage}/gen-{number:04d}\nfrom {branch}\n\n"
    return b"".join([*parts, tag.encode()])


def recorded_in(folder: Path) -> Generation:
    """The generation that a folder like a clone at its tag holds: that of the last ledger entry."""
    entry = read_ledger(folder)[-1]
    return Generation(entry.lineage, entry.generation, WorkTreeFiles(folder), Line(canonical_line(entry), entry))

"""Parts of recorded generations in the real formats, made without games or training."""

import json
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zero.record.generation import Generation
from zero.record.history import Line
from zero.record.ledger import read_ledger
from zero.record.objects import WorkTreeFiles
from zero.record.provenance import (
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
from zero.storage.manifests import Colours, Manifest, MatchResult, PromotionDecision

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


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
    half = Colours(wins=wins // 2, losses=(num_games - wins) // 2, draws=0)
    match = MatchResult(
        wins=wins,
        losses=num_games - wins,
        draws=0,
        as_black=half,
        as_white=half,
        unique_games=num_games - 1,
        score=wins / num_games,
        interval=interval,
        mean_length=31.25,
    )
    return PromotionDecision(
        lineage=lineage,
        generation=number,
        promoted=promoted,
        threshold=0.55,
        match=match,
        challenger=challenger,
        champion=champion,
    )


def made_attestation(
    lineage: str,
    number: int,
    challenger: str,
    parameters: dict[str, Any],
    engine: str,
    profile: dict[str, str],
    byproducts: tuple[Resource, ...] = (),
) -> bytes:
    """The signed attestation of a decision."""
    statement = Attestation(
        subject=(Resource(name="models/challenger/weights.safetensors", digest={"sha256": challenger}),),
        predicate=Predicate(
            build_definition=BuildDefinition(
                build_type="urn:zero:decision:1",
                external_parameters=ExternalParameters(lineage=lineage, generation=number, parameters=parameters),
                internal_parameters=InternalParameters(engine={"selfplay": engine}, profile=profile, lock="b" * 64),
                resolved_dependencies=(Resource(name="source", digest={"gitCommit": f"{number:040x}"}),),
            ),
            run_details=RunDetails(
                metadata=Metadata(invocation_id=f"{lineage}/gen-{number:04d}"), byproducts=byproducts
            ),
        ),
    )
    return sign(attestation_bytes(statement), KEY)


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

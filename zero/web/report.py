"""`GenerationReport`: everything that a person wants to know of one generation, as JSON.

It is made from the record (`zero.record.Generation`) and from the shards of games that are on this machine. What the
record lacks, or this version of the program cannot read, is None. The page (`static/report.js`) and the file of
`zero report` show the same report.
"""

import html
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from zero.config.params import PARAMS_FILE
from zero.data.records import GameColumns, concatenate, read_records
from zero.errors import LineageError
from zero.evaluation.openings import most_frequent, opening_moves, stones_after
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.lineage.status import pages_of, warning_lines
from zero.network.health import Health
from zero.record.costs import GenerationCosts
from zero.record.generation import Generation
from zero.record.ledger import NAME_PATTERN, line_digest, parse_tag
from zero.record.lineages import ProjectRecord, workspace_generations
from zero.record.metrics import Resignation, read_curve
from zero.record.objects import CommittedFiles
from zero.record.provenance import attestation_digest
from zero.record.texts import match_interval
from zero.storage.layout import GAMES_DIR, LEDGER_FILE, MATCH_DIR, TRAINING_CURVE, TRAINING_METRICS, workspace_dir
from zero.storage.manifests import GameSet, LedgerEntry, Manifest, PromotionDecision
from zero.web.assets import STATIC_DIR, inlined_modules, vega_bundle

OPENING_MOVES, OPENINGS = 4, 8
"""Moves of an opening, and number of openings in a report."""
TRAINING_VALUES = (
    *("step", "loss", "policy_loss", "value_loss", "constant_value_loss", "saturated_values", "value_deviation"),
    *("policy_accuracy", "policy_entropy", "learning_rate", "window_games"),
)
"""Numbers of metrics/training.json that a report has."""
REPORT_MODULES = ("report.js", "charts.js", "board.js", "app.js")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
<script type="importmap">{modules}</script>
</head>
<body>
<main id="report"></main>
<noscript><p class="error">This report needs JavaScript.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{vega}</script>
<script type="module">
import {{ render }} from "zero/report.js";
render(document.getElementById("report"), JSON.parse(document.getElementById("data").textContent));
</script>
</body>
</html>
"""
Kind = Literal["start", "decision", "rollback", "branch"]
Outcome = Literal["B", "W", "D"]


class BoardShape(Manifest):
    """The board of the lineage's game."""

    game: str
    rows: int
    columns: int


class ReportGames(Manifest):
    """Statistics of the games of self-play, or of the match."""

    num_games: int
    ended: dict[str, int] | None
    """Number of games by the way they ended."""
    results: dict[Outcome, int] | None
    """Number of games that Black won, that White won, and draws."""
    lengths: dict[int, int] | None
    """Number of games by number of moves; None if the shards are not on this machine."""


class FrequentOpening(Manifest):
    """A sequence of first moves, up to the symmetries of the board, and its share of the games."""

    moves: tuple[tuple[int, int], ...]
    """Colour (0 Black, 1 White) and action of each move."""
    stones: tuple[int, ...]
    """Colour of each point after the moves: +1 Black, -1 White, 0 empty."""
    names: str
    share: float
    """Share of the games that have at least this number of moves."""


class Shard(Manifest):
    """A file of games."""

    path: str
    sha256: str
    num_bytes: int
    num_games: int
    is_here: bool
    """True if the file is on this machine."""


class Provenance(Manifest):
    """Digests of the generation and of what it was made from."""

    commit: str | None
    """Commit that recorded the generation."""
    parent: str | None
    """Commit on which the stages ran."""
    ledger_line: str
    """SHA-256 of its line of the ledger."""
    previous_line: str
    params: str
    """Digest of the parameters."""
    dvc_lock: str
    champion: str
    """SHA-256 of the champion's weights after the decision."""
    challenger: str | None
    opponent: str | None
    trainee: str
    attestation: str | None
    """SHA-256 of the attestation; None if it cannot be read."""
    signatures: tuple[str, ...]
    """Ids of the keys that signed the attestation. The signatures are not checked here."""
    inputs: dict[str, str]
    """Digest of everything that the attestation names as an input."""
    code: dict[str, str]
    """Digest of the code of each stage."""
    profile: dict[str, str]
    """Execution profile."""
    shards: tuple[Shard, ...] | None
    """Shards of self-play and of the match; None if a manifest is not on this machine."""


class Numbers(Manifest):
    """Numbers of a generation that are compared with those of another one."""

    tag: str
    generation: int
    values: dict[str, float | None]
    curve: dict[str, tuple[float | None, ...]] | None
    """Columns of `plots/training.csv`, which has a line every few steps."""


class GenerationReport(Manifest):
    """Everything that a person wants to know of one generation."""

    version: Literal[1] = 1
    lineage: str
    generation: int
    tag: str
    kind: Kind
    source: str | None
    """Generation that a rollback or a branch restores."""
    recorded_ms: int | None
    """Time of the commit, milliseconds since 1970."""
    board: BoardShape | None
    decision: PromotionDecision | None
    interval: tuple[float, float] | None
    """95 % interval of the score of its match; see `zero.record.texts.match_interval`."""
    champion_generation: int
    opponent_generation: int | None
    """Generation of the champion that the challenger played."""
    warnings: tuple[str, ...]
    numbers: Numbers
    previous: Numbers | None
    """The generation before; None for the first one of the ledger."""
    next_generation: int | None
    health: Health | None
    resignation: Resignation | None
    selfplay: ReportGames | None
    match: ReportGames | None
    openings: tuple[FrequentOpening, ...] | None
    """The most frequent openings of self-play; None if the shards are not on this machine."""
    costs: GenerationCosts | None
    provenance: Provenance
    links: dict[str, str]


def generation_report(home: Path, generations: Sequence[Generation], number: int) -> GenerationReport:
    """The report of generation `number` of a lineage.

    Args:
      home: the project's folder.
      generations: all recorded generations of the lineage, oldest first.
      number: number of the generation.

    Raises:
      LineageError: the lineage has no such generation.
      StorageError: a file of the generation is corrupt.
    """
    numbers = [each.number for each in generations]
    if number not in numbers:
        raise LineageError(
            f"unknown generation {number} of lineage {generations[0].lineage}; it has {numbers[0]} to {numbers[-1]}"
        )
    index = numbers.index(number)
    generation, previous = generations[index], generations[index - 1] if index else None
    entry = generation.read_entry()
    params = generation.params
    rules = rules_of(params.game) if params else None
    played = _games_here(generation, GAMES_DIR, generation.games)
    return GenerationReport(
        lineage=generation.lineage,
        generation=number,
        tag=generation.tag,
        kind=entry.kind,
        source=entry.source.tag if entry.source else None,
        recorded_ms=generation.recorded_ms,
        board=BoardShape(game=params.game.name, rows=rules.rows, columns=rules.columns) if params and rules else None,
        decision=entry.decision,
        interval=match_interval(entry.decision.match) if entry.decision else None,
        champion_generation=entry.champion_generation,
        opponent_generation=previous.read_entry().champion_generation if previous and entry.decision else None,
        warnings=tuple(warning_lines(generation)),
        numbers=numbers_of(generation),
        previous=numbers_of(previous) if previous else None,
        next_generation=numbers[index + 1] if index + 1 < len(numbers) else None,
        health=generation.health if entry.decision else None,
        resignation=metrics.resignation if entry.decision and (metrics := generation.selfplay_metrics) else None,
        selfplay=_selfplay(generation, played) if entry.decision else None,
        match=_match(entry.decision, _games_here(generation, MATCH_DIR, generation.match)) if entry.decision else None,
        openings=_openings(rules, played) if played and rules else None,
        costs=generation.costs,
        provenance=_provenance(generation, entry),
        links=pages_of(home, generation.lineage),
    )


def report_of(home: Path, target: str) -> GenerationReport:
    """The report of a generation, given by its tag; of a lineage its newest one.

    Raises:
      LineageError: the lineage or generation is unknown.
      StorageError: a file of the generation is corrupt.
    """
    lineage, number = parse_tag(target) or (target, None)
    if not NAME_PATTERN.match(lineage):
        raise LineageError(f"unknown generation {target!r}; `git tag --list '*/gen-*'` lists the known ones")
    with open_generations(home, lineage) as generations:
        return generation_report(home, generations, generations[-1].number if number is None else number)


@contextmanager
def open_generations(home: Path, lineage: str, offline: bool = False) -> Iterator[list[Generation]]:
    """The recorded generations of a lineage, oldest first, from its workspace or else from the project's git.

    Args:
      home: the project's folder.
      lineage: name of the lineage.
      offline: True if missing cost notes are not fetched from the project's remote.

    Raises:
      LineageError: the lineage is unknown, its ledger is broken, or it has no generation that can be read.
    """
    workspace = workspace_dir(home, lineage)
    with ExitStack() as stack:
        if NAME_PATTERN.match(lineage) and (workspace / LEDGER_FILE).exists():
            made = stack.enter_context(workspace_generations(workspace))
            # `zero advance` writes the line of the ledger before the commit and the tag.
            found = [each for each in made if each.file(PARAMS_FILE) is not None]
        else:
            made = stack.enter_context(ProjectRecord(home, offline)).generations(lineage)
            found = [each for each in made if each.entry is not None]
        if not found:
            raise LineageError(f"{lineage} has no generation that can be read; `zero audit {lineage}` reports why")
        yield found


def report_html(report: GenerationReport) -> bytes:
    """A report as one HTML file that needs no other file.

    Raises:
      StorageError: the cache folder cannot be written.
    """
    page = PAGE.format(
        title=html.escape(report.tag),
        style=(STATIC_DIR / "style.css").read_text(),
        modules=inlined_modules(*REPORT_MODULES),
        # Within a script element no text ends the element without this character.
        data=report.model_dump_json().replace("<", "\\u003c"),
        vega=vega_bundle().read_text().replace("</script", "<\\/script"),
    )
    return page.encode()


def numbers_of(generation: Generation) -> Numbers:
    """The numbers of a generation; None for what it lacks.

    Raises:
      StorageError: metrics/training.json is corrupt.
    """
    entry = generation.read_entry()
    values: dict[str, float | None] = {}
    curve = None
    if entry.decision is not None:
        match, selfplay, costs = entry.decision.match, generation.selfplay_metrics, generation.costs
        values |= {
            "score": match.score,
            "match_length": match.mean_length,
            "games": selfplay.num_games if selfplay else None,
            "positions": selfplay.num_positions if selfplay else None,
            "unique_games": selfplay.unique_games if selfplay else None,
            "game_length": selfplay.mean_length if selfplay else None,
            "root_value_error": selfplay.root_value_error if selfplay else None,
            **training_values(generation),
            "seconds": costs.total().seconds if costs else None,
            "cpu_seconds": costs.total().cpu_seconds if costs else None,
        }
        curve = _curve(generation)
    return Numbers(tag=generation.tag, generation=generation.number, values=values, curve=curve)


def training_values(generation: Generation) -> dict[str, float | None]:
    """Numbers of the training at its last step.

    Raises:
      StorageError: metrics/training.json is corrupt.
    """
    health = generation.health  # first: it reports a corrupt file
    metrics = json.loads(generation.file(TRAINING_METRICS) or b"{}")
    values = {name: _number(metrics.get(name)) for name in TRAINING_VALUES}
    return values | {"explained_variance": health.explained_variance if health else None}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _curve(generation: Generation) -> dict[str, tuple[float | None, ...]] | None:
    """The columns of `plots/training.csv`; None if it is missing or damaged."""
    try:
        rows = read_curve((generation.file(TRAINING_CURVE) or b"").decode(errors="replace"))
    except ValueError:
        return None
    return {name: tuple(_number(row[name]) for row in rows) for name in rows[0]} if rows else None


def _games_here(generation: Generation, folder: str, games: GameSet | None) -> GameColumns | None:
    """The games in a folder; None if a shard is not on this machine.

    Raises:
      StorageError: a shard is corrupt.
    """
    shards = [(generation.data(folder, each.file.path), each.file.path) for each in games.shards] if games else []
    if not shards or any(data is None for data, _ in shards):
        return None
    return concatenate(read_records(data, f"{folder}/{name} of {generation.tag}") for data, name in shards if data)


def _selfplay(generation: Generation, played: GameColumns | None) -> ReportGames | None:
    metrics = generation.selfplay_metrics
    if metrics is None:
        return None
    results: dict[Outcome, int] = {"B": metrics.black_wins, "W": metrics.white_wins, "D": metrics.draws}
    return ReportGames(num_games=metrics.num_games, ended=metrics.ended, results=results, lengths=_lengths(played))


def _match(decision: PromotionDecision, played: GameColumns | None) -> ReportGames:
    """The games of the match; how they ended is only in the shards."""
    match = decision.match
    black = match.as_black.wins + match.as_white.losses
    white = match.as_black.losses + match.as_white.wins
    return ReportGames(
        num_games=match.num_games,
        ended=dict(Counter(played.end)) if played else None,
        results={"B": black, "W": white, "D": match.draws},
        lengths=_lengths(played),
    )


def _lengths(games: GameColumns | None) -> dict[int, int] | None:
    if games is None:
        return None
    lengths, counts = np.unique(np.diff(games.move_offsets), return_counts=True)
    return dict(zip(lengths.tolist(), counts.tolist(), strict=True))


def _openings(rules: Rules, games: GameColumns) -> tuple[FrequentOpening, ...]:
    table = Counter(opening_moves(rules, games, OPENING_MOVES))
    found = most_frequent(rules, "opening", [table], [0], OPENINGS)
    return tuple(
        FrequentOpening(
            moves=each.moves,
            stones=tuple(stones_after(rules, each.moves).tolist()),
            names=each.names,
            share=each.shares[0],
        )
        for each in found
    )


def _provenance(generation: Generation, entry: LedgerEntry) -> Provenance:
    files = generation.files
    # Of a workspace the generations are read by tag.
    commit = files.reader.object_name(f"{files.commit}^{{commit}}") if isinstance(files, CommittedFiles) else None
    envelope, decision = generation.envelope, entry.decision
    attestation = envelope.attestation if envelope else None
    return Provenance(
        commit=commit,
        parent=generation.parent,
        ledger_line=line_digest(entry),
        previous_line=entry.previous,
        params=entry.params_digest,
        dvc_lock=entry.lock_digest,
        champion=entry.champion,
        challenger=decision.challenger if decision else None,
        opponent=decision.champion if decision else None,
        trainee=entry.trainee,
        attestation=attestation_digest(envelope.payload) if envelope else None,
        signatures=envelope.key_ids if envelope else (),
        inputs={name: next(iter(each.digest.values()), "") for name, each in attestation.dependencies.items()}
        if attestation
        else {},
        code=dict(attestation.internal.engine) if attestation else {},
        profile=dict(attestation.internal.profile) if attestation else {},
        shards=_shards(generation) if decision else (),
    )


def _shards(generation: Generation) -> tuple[Shard, ...] | None:
    """The shards of self-play and of the match; None if a manifest is not on this machine."""
    if generation.games is None or generation.match is None:
        return None
    return tuple(
        Shard(
            path=f"{folder}/{shard.file.path}",
            sha256=shard.file.sha256,
            num_bytes=shard.file.num_bytes,
            num_games=shard.num_games,
            is_here=generation.data_path(folder, shard.file.path) is not None,
        )
        for folder, games in ((GAMES_DIR, generation.games), (MATCH_DIR, generation.match))
        for shard in games.shards
    )

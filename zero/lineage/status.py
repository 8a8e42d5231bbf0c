"""What a person reads in the terminal: where a lineage stands, what was decided, games as SGF."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from zero.config.settings import STATE_FOLDER
from zero.errors import ZeroError
from zero.network.health import Health, recorded_health
from zero.record.costs import GenerationCosts, read_note
from zero.record.ledger import find_workspace, generation_tag, standing
from zero.record.metrics import Calibration, SelfplayMetrics
from zero.storage.files import checked_path, read_manifest
from zero.storage.layout import SELFPLAY_METRICS, TRAINING_METRICS
from zero.storage.manifests import NO_RESIGNATION, GameSet, LedgerEntry
from zero.storage.vcs import git

LAST_DECISIONS = 10
TABLE_WIDTH = 150


def servers(home: Path) -> dict[str, str]:
    """Addresses of this machine's servers by name, as `make up` wrote them."""
    try:
        addresses: dict[str, str] = json.loads((home / STATE_FOLDER / "servers.json").read_text())
    except (OSError, ValueError):
        return {}
    return {name: addresses[name] for name in ("prefect", "mlflow") if name in addresses}


def decision_lines(entry: LedgerEntry, tag: str) -> list[str]:
    """A decision in a few lines."""
    if entry.source is not None:
        return [f"{tag}: {entry.kind} from {entry.source.tag}, champion {entry.champion[:12]}"]
    if entry.decision is None:
        return [f"{tag}: the seeded random network {entry.champion[:12]}"]
    match = entry.decision.match
    games = match.wins + match.losses + match.draws
    word = "promoted: it is the new champion" if entry.decision.promoted else "refused: the champion stays"
    return [
        f"decision: challenger {entry.decision.challenger[:12]} {word}",
        f"match: {games} games, {match.wins} won, {match.losses} lost, {match.draws} drawn; score {match.score:.1%} "
        f"(95 % interval {match.interval[0]:.1%} to {match.interval[1]:.1%}, threshold {entry.decision.threshold:.0%})",
        f"as Black {_colours(match.as_black)}, as White {_colours(match.as_white)}; {match.unique_games} unique games",
        f"tag: {tag}",
    ]


def warning_lines(workspace: Path, entry: LedgerEntry) -> list[str]:
    """What is wrong with a generation, in plain words: its training's health, and a champion that is still random."""
    health = _health(workspace, entry)
    lines = [] if health is None else health.lines()
    if entry.decision is not None and entry.champion_generation == 0:
        lines.append(
            "the champion is still generation 0, the random network: no challenger has beaten it. Make the next "
            f"generation: `make generation LINEAGE={entry.lineage}`"
        )
    return lines


def _health(workspace: Path, entry: LedgerEntry) -> Health | None:
    """The health of a generation's training; None if it has no training, no health checks, or no tag yet."""
    tag = generation_tag(entry.lineage, entry.generation)
    if entry.decision is None or not git(workspace, "tag", "--list", tag).strip():
        return None
    name = f"{tag}:{TRAINING_METRICS}"
    return recorded_health(git(workspace, "show", name).encode(), name)


def status_screen(home: Path, lineage: str) -> None:
    """Prints one screen about a lineage."""
    now = standing(find_workspace(home, lineage))
    console = Console()
    table = Table(title=f"lineage {lineage}", title_justify="left")
    for column, justify in (("tag", "left"), ("decision", "left"), ("score", "right"), ("interval", "right")):
        table.add_column(column, no_wrap=True, justify=justify)  # type: ignore[arg-type]  # rich names its four words in a Literal
    table.add_column("unique", justify="right")
    table.add_column("champion (generation)")
    for entry in now.ledger[-LAST_DECISIONS:]:
        table.add_row(*_row(entry))
    console.print(table)
    noted = [(entry, read_note(now.workspace, lineage, tag)) for entry, tag in _with_tags(now.ledger[-LAST_DECISIONS:])]
    if any(costs for _, costs in noted):
        console.print(_costs_table(noted))
    last = now.ledger[-1]
    console.print(
        f"champion {last.champion[:12]} of generation {last.champion_generation}; next is generation "
        f"{now.next_generation}\nworkspace {now.workspace}",
        soft_wrap=True,
    )
    health = _health(now.workspace, last)
    if health is not None:
        console.print(_health_line(health), soft_wrap=True)
    for line in warning_lines(now.workspace, last):
        console.print(f"[yellow]warning:[/yellow] {line}", soft_wrap=True)


def status_json(home: Path, lineages: list[str]) -> dict[str, Any]:
    """The same for a program."""
    rows = {}
    for name in lineages:
        now = standing(find_workspace(home, name))
        rows[name] = {
            "workspace": str(now.workspace),
            "next_generation": now.next_generation,
            "tag": generation_tag(name, now.ledger[-1].generation),
            "last": now.ledger[-1].model_dump(mode="json"),
            "warnings": warning_lines(now.workspace, now.ledger[-1]),
            "costs": {
                tag: costs.model_dump(mode="json")
                for _, tag in _with_tags(now.ledger)
                if (costs := read_note(now.workspace, name, tag))
            },
        }
    return {"home": str(home), "lineages": rows, "servers": servers(home)}


def _health_line(health: Health) -> str:
    if health.verdict == "unknown":
        return f"training: {'; '.join(health.findings)}"
    if health.verdict == "healthy":
        return f"training: healthy; the value explains {health.explained_variance:.0%} of the variance of its targets"
    return f"training: {health.verdict}"


def resignation_screen(home: Path, lineage: str) -> None:
    """Prints, generation by generation, what resignation cost and which threshold followed.

    Raises:
      ZeroError: no generation of the lineage has resignation.
    """
    workspace = find_workspace(home, lineage)
    table = Table(title=f"resignation in lineage {lineage}", title_justify="left")
    table.add_column("tag", no_wrap=True)
    for column in ("games", "resigned", "threshold", "calibration games", "would resign", "would have won", "rate"):
        table.add_column(column, justify="right")
    for column in ("95 % interval", "next threshold", "its rate", "95 % interval"):
        table.add_column(column, justify="right")
    for entry in standing(workspace).ledger:
        if entry.decision is None:
            continue
        tag = generation_tag(lineage, entry.generation)
        metrics = SelfplayMetrics.model_validate_json(git(workspace, "show", f"{tag}:{SELFPLAY_METRICS}"))
        if metrics.resignation:
            used, following = metrics.resignation.used, metrics.resignation.following
            table.add_row(
                *(tag, str(metrics.num_games), str(metrics.resignation.resigned_games), _threshold(used.threshold)),
                *(str(used.num_games), str(used.would_resign), str(used.would_have_won), *_rate(used)),
                *(_threshold(following.threshold), *_rate(following)),
            )
    if not table.row_count:
        raise ZeroError(
            f"no generation of {lineage} has resignation: selfplay.calibration_fraction is 0, or none is made"
        )
    Console(width=max(TABLE_WIDTH, Console().width)).print(table)


def write_games_as_sgf(folder: Path, games_dir: Path, out: Path, number: int | None) -> int:
    """Writes the games of a set (or one of them) as SGF and returns how many.

    Raises:
      ZeroError: there is no such game.
    """
    from zero.config.params import load_params
    from zero.data.records import game_record, read_records
    from zero.data.sgf import game_to_sgf, write_collection
    from zero.games.rules import rules_of

    games = read_manifest(games_dir, GameSet)
    rules = rules_of(load_params(folder).game)
    event = f"{games.origin.lineage} generation {games.origin.generation}, {games.origin.stage}"
    names = {digest: name for name, digest in games.origin.inputs.items()}
    texts = []
    for shard in games.shards:
        if number is not None and not shard.first_game <= number < shard.first_game + shard.num_games:
            continue
        path = checked_path(shard.file, games_dir)
        columns = read_records(path.read_bytes(), str(path))
        for index in range(columns.num_games):
            record = game_record(columns, index)
            if number is None or record.game == number:
                texts.append(
                    game_to_sgf(
                        rules,
                        record,
                        event=event,
                        black_name=names.get(record.black, ""),
                        white_name=names.get(record.white, ""),
                    )
                )
    if not texts:
        raise ZeroError(f"no game {number} in {games_dir}; it has games 0 to {games.num_games - 1}")
    write_collection(out, texts)
    return len(texts)


def _with_tags(ledger: Iterable[LedgerEntry]) -> list[tuple[LedgerEntry, str]]:
    """The decisions of a ledger, each with its tag."""
    return [(entry, generation_tag(entry.lineage, entry.generation)) for entry in ledger if entry.decision]


def _costs_table(noted: Iterable[tuple[LedgerEntry, GenerationCosts | None]]) -> Table:
    """A row a generation; `?` for what nobody noted, or no machine could tell."""
    table = Table(title="what it cost", title_justify="left")
    table.add_column("tag", no_wrap=True)
    for column in ("wall", "CPU h", "GPU h", "games", "evaluations", "kWh"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry, costs in noted:
        tag = generation_tag(entry.lineage, entry.generation)
        if costs is None:
            table.add_row(tag, *("?",) * 6)
            continue
        total = costs.total()
        evaluations = f"{total.evaluations:,}" + (" + ?" if total.shards_without_receipt else "")
        table.add_row(
            *(tag, str(timedelta(seconds=round(total.seconds))), f"{total.cpu_seconds / 3600:.3f}"),
            *(f"{total.gpu_seconds / 3600:.3f}", f"{total.games:,}", evaluations),
            "?" if total.joules is None else f"{total.joules / 3.6e6:.3f}",
        )
    return table


def _row(entry: LedgerEntry) -> tuple[str, ...]:
    champion = f"{entry.champion[:12]} ({entry.champion_generation})"
    tag = generation_tag(entry.lineage, entry.generation)
    if entry.decision is None:
        word = entry.kind if entry.source is None else f"{entry.kind} from {entry.source.tag}"
        return (tag, word, "", "", "", champion)
    match = entry.decision.match
    interval = f"{match.interval[0]:.0%} to {match.interval[1]:.0%}"
    word = "promoted" if entry.decision.promoted else "refused"
    return (tag, word, f"{match.score:.1%}", interval, str(match.unique_games), champion)


def _threshold(threshold: float) -> str:
    return "nobody resigns" if threshold <= NO_RESIGNATION else f"{threshold:.2f}"


def _rate(found: Calibration) -> tuple[str, str]:
    if not found.would_resign:
        return "", ""
    return f"{found.false_positive_rate:.1%}", f"{found.interval[0]:.1%} to {found.interval[1]:.1%}"


def _colours(games: Any) -> str:
    return f"+{games.wins} -{games.losses} ={games.draws}"

"""Checks of what was played for: the match judged again by the rules, and who played it."""

from collections.abc import Iterator
from contextlib import suppress

from zero.audit.data import AGAIN, UNREADABLE, shard
from zero.audit.findings import Drift, differs
from zero.data.adjudication import adjudicate, violation_text
from zero.data.records import GameColumns, concatenate
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.network.health import recorded_health
from zero.record.generation import PLAYER_NAME, Generation, State
from zero.stages.gating import decide, match_result
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DVC_LOCK_FILE,
    GATING_METRICS,
    GENERATION_FILE,
    MATCH_DIR,
    PLAYER_DIR,
    REPLAY_DIR,
    TRAINEE_DIR,
    TRAINING_METRICS,
)
from zero.storage.manifests import MANIFEST_FILE, Checkpoint, MatchResult


def check_match(generation: Generation) -> Iterator[Drift]:
    """Every game of the match is played again by the rules and counted; the decision follows from it."""
    entry, params = generation.entry, generation.params
    if entry is None or entry.decision is None:
        return
    remedy = f"restore it from the true tag: `git checkout {generation.tag} -- {GATING_METRICS}`"
    yield from _check_decision(generation, remedy)
    if params is None or generation.match is None:
        return
    shards = [shard(generation, MATCH_DIR, ref.file) for ref in generation.match.shards]
    games = [each for each in shards if isinstance(each, GameColumns)]
    if not games or len(games) < len(shards):
        return  # what is not here or cannot be read is told by the checks of data and manifests
    columns = concatenate(games)
    rules = rules_of(params.game)
    if columns.num_actions != rules.num_actions:
        yield Drift(MATCH_DIR, "actions of a position", str(columns.num_actions), str(rules.num_actions), remedy)
        return
    judged = adjudicate(rules, columns)
    for index in judged.violating_games[:1]:
        told = f"{violation_text(rules, columns, judged, int(index))}, at move {judged.violation_move[index]}"
        what = f"{len(judged.violating_games)} games against the rules, first game {columns.game[index]}"
        yield Drift(MATCH_DIR, what, told, "a game by the rules", AGAIN.format(tag=generation.tag))
    counted = match_result(columns._replace(outcome=judged.outcome))
    yield from _compare(GATING_METRICS, generation.decision.match if generation.decision else None, counted, remedy)
    ledger = "restore the ledger from the last tag at which `zero audit` passes"
    yield from _compare("record/ledger.jsonl", entry.decision.match, counted, ledger)


def _check_decision(generation: Generation, remedy: str) -> Iterator[Drift]:
    """The decision of the ledger is that of the metrics, follows from its match, and was carried out."""
    entry, params = generation.entry, generation.params
    assert entry is not None and entry.decision is not None
    said, decision = generation.decision, entry.decision
    if said is None:
        yield Drift(GATING_METRICS, "decision", "none that can be read", "the ledger's", remedy)
    else:
        for name in ("lineage", "generation", "promoted", "threshold", "challenger", "champion"):
            yield from differs(
                GATING_METRICS, f"{name} against the ledger", getattr(said, name), getattr(decision, name), remedy
            )
    where = f"record/ledger.jsonl, {generation.tag}"
    if params is not None:
        yield from differs(where, "threshold against params.yaml", decision.threshold, params.gating.threshold, remedy)
    yield from differs(
        where, "decision against its match", decision.promoted, decide(decision.match, decision.threshold), remedy
    )
    before = generation.before.entry if generation.before else None
    if before is not None:
        champion = decision.challenger if decision.promoted else before.champion
        number = generation.number if decision.promoted else before.champion_generation
        yield from differs(where, "champion after the decision", entry.champion, champion, remedy)
        yield from differs(where, "generation of the champion", entry.champion_generation, number, remedy)


def _compare(where: str, found: MatchResult | None, counted: MatchResult, remedy: str) -> Iterator[Drift]:
    for name in MatchResult.model_fields:
        said, expected = getattr(found, name) if found else None, getattr(counted, name)
        if isinstance(expected, MatchResult | tuple | float):
            yield from differs(where, f"{name} of the match", str(said), str(expected), remedy)
        else:
            yield from differs(where, f"{name} of the match", said, expected, remedy)


def check_parent(generation: Generation) -> Iterator[Drift]:
    """Champion and trainee at its start are those that the line before left; what it made is its own."""
    entry = generation.entry
    if entry is None:
        return
    remedy = f"see `git log -p {generation.tag} -- state`"
    state = generation.before.after if generation.before else None
    if entry.kind in ("start", "branch", "rollback"):
        state = generation.after  # its commit holds what it set up
    if state is None:
        return
    if entry.decision is not None:
        where = f"record/ledger.jsonl, {generation.tag}"
        yield from differs(where, "champion of the match", entry.decision.champion, state.champion, remedy)
    if generation.source is not None and generation.source.after is not None:
        source = generation.source.after
        where = f"record/ledger.jsonl, {generation.tag}"
        yield from differs(where, "champion", entry.champion, source.champion, remedy)
        yield from differs(
            where, "generation of the champion", entry.champion_generation, source.champion_generation, remedy
        )
        yield from differs(where, "trainee", entry.trainee, source.trainee, remedy)
    if generation.champion is not None:
        champion = generation.champion
        yield from differs(f"{CHAMPION_DIR}.dvc", "champion", champion.weights.sha256, state.champion, remedy)
        yield from differs(
            f"{CHAMPION_DIR}.dvc", "its generation", champion.generation, state.champion_generation, remedy
        )
    if generation.commit is not None:
        yield from _check_identity(generation, state, remedy)
        yield from _check_handed_on(generation, remedy)
    yield from _check_player(generation, state, remedy)
    if generation.trainee is not None:
        yield from differs(f"{TRAINEE_DIR}.dvc", "trainee", generation.trainee.trainee.sha256, state.trainee, remedy)
    if generation.challenger is not None and entry.decision is not None:
        where = CHALLENGER_DIR
        yield from differs(where, "challenger", generation.challenger.weights.sha256, entry.decision.challenger, remedy)
        yield from differs(where, "trainee", generation.challenger.trainee.sha256, entry.trainee, remedy)
        yield from _check_restart(generation, generation.challenger, remedy)
    yield from _check_dependencies(generation, remedy)
    yield from _check_source(generation)


def _check_restart(generation: Generation, challenger: Checkpoint, remedy: str) -> Iterator[Drift]:
    """A challenger restarts exactly if its training was dead, and then repeats the trainee."""
    health = None
    with suppress(StorageError):  # a damaged file is reported by the check of the statement
        health = recorded_health(generation.file(TRAINING_METRICS) or b"{}", TRAINING_METRICS)
    if health is not None:
        dead = str(health.verdict == "dead")
        yield from differs(CHALLENGER_DIR, "restart", str(challenger.restarts), dead, remedy)
    if challenger.restarts and generation.trainee is not None:
        kept = generation.trainee
        for name, found, expected in (
            ("trainee", challenger.trainee.sha256, kept.trainee.sha256),
            ("optimizer of the trainee", challenger.optimizer.sha256, kept.optimizer.sha256),
            ("average of the trainee", challenger.trainee_average.sha256, kept.trainee_average.sha256),
            ("step of the trainee", challenger.step, kept.step),
        ):
            yield from differs(CHALLENGER_DIR, name, found, expected, remedy)


def _check_identity(generation: Generation, state: State, remedy: str) -> Iterator[Drift]:
    """`state/generation.json` is of this generation, with the threshold and the player that the state gives."""
    found, kind = generation.identity, generation.entry.kind if generation.entry else ""
    if found is None:
        yield Drift(GENERATION_FILE, "generation", UNREADABLE, generation.tag, remedy)
        return
    number = generation.number + (kind == "start")  # a lineage begins with the file of its first generation
    yield from differs(GENERATION_FILE, "lineage", found.lineage, generation.lineage, remedy)
    yield from differs(GENERATION_FILE, "number", found.number, number, remedy)
    yield from differs(GENERATION_FILE, "player", found.player, state.player, remedy)
    if state.resign_threshold is not None:
        what = "threshold of resignation"
        yield from differs(GENERATION_FILE, what, found.resign_threshold, state.resign_threshold, remedy)


def _check_handed_on(generation: Generation, remedy: str) -> Iterator[Drift]:
    """Folders of the state are those that were left, every file of them: the optimiser and what manifests say too."""
    kind = generation.entry.kind if generation.entry else ""
    giver = generation.before if kind == "decision" else generation.source
    if giver is None or giver.after is None:
        return
    for path, md5 in giver.after.md5.items():
        if kind != "branch" or path != REPLAY_DIR:  # a branch makes the manifest of its window its own
            found = generation.states[path].md5 if path in generation.states else None
            yield from differs(f"{path}.dvc", f"MD5 against what {giver.tag} left", found, md5, remedy)


def _check_player(generation: Generation, state: State, remedy: str) -> Iterator[Drift]:
    """Who plays where self-play overlaps is the champion that stood when the generation before began, and is here."""
    found = generation.player
    listed = generation.object_of(CHAMPION_DIR, f"{PLAYER_NAME}/{MANIFEST_FILE}")
    if generation.champion is None or (found is None and listed is not None):
        return  # it is not here, which the check of data tells
    yield from differs(f"{CHAMPION_DIR}.dvc", PLAYER_DIR, found.weights.sha256 if found else None, state.player, remedy)
    if found is not None and state.player_generation is not None:
        yield from differs(f"{CHAMPION_DIR}.dvc", "its generation", found.generation, state.player_generation, remedy)


def _check_dependencies(generation: Generation, remedy: str) -> Iterator[Drift]:
    """What dvc.lock says the stages read is what lies in the state, and what earlier stages wrote."""
    for name, stage in generation.stages.items() if generation.outs else ():
        for dep in stage.get("deps", ()):
            out = generation.out(str(dep.get("path")))
            if out is not None:
                yield from differs(DVC_LOCK_FILE, f"{name} reads {out.path}", dep.get("md5"), out.md5, remedy)


def _check_source(generation: Generation) -> Iterator[Drift]:
    """A rollback or a branch names the generation that it goes back to as the record has it."""
    entry, source = generation.entry, generation.source
    if entry is None or entry.source is None:
        return
    where, remedy = f"record/ledger.jsonl, {generation.tag}", "see `git log` of both lineages"
    if source is None or source.line is None:
        yield Drift(where, "source", "no such generation", entry.source.tag, remedy)
        return
    yield from differs(where, "tag of its source", entry.source.tag, source.tag, remedy)
    yield from differs(where, "commit of its source", entry.source.commit, source.commit, remedy)
    yield from differs(where, "line of its source", entry.source.line, source.line.digest, remedy)

"""Checks of the decision: the match replayed by the rules, its players, and the state before and after it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from zero.audit.data import RESTORE_OBJECT, UNREADABLE, compare_window_shards, read_shard
from zero.audit.findings import Mismatch, differing_fields, differs, restored
from zero.config.params import NetworkParams, params_digest
from zero.data.adjudication import adjudicate, violation_text
from zero.data.dataset.manifest import Dataset, DatasetFile
from zero.data.records import GameColumns, concatenate
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.lineage.imported import first_window
from zero.record.generation import PLAYER_NAME, Generation, State, listed, read_model
from zero.stages.gating import decide, match_result
from zero.storage.files import sha256_bytes
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    GATING_METRICS,
    GENERATION_FILE,
    LEDGER_FILE,
    MATCH_DIR,
    OLD_WINDOW_DIR,
    PLAYER_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import (
    MANIFEST_FILE,
    Checkpoint,
    MatchResult,
    Origin,
    PromotionDecision,
    Window,
)


def check_match(generation: Generation) -> Iterator[Mismatch]:
    """Every game of the match follows the rules, the result is their count, and the decision follows from it."""
    entry, params = generation.entry, generation.params
    if entry is None or entry.decision is None:
        return
    remedy = restored(generation.tag, GATING_METRICS)
    yield from _check_decision(generation, remedy)
    if params is None or generation.match is None:
        return
    shards = [read_shard(generation, MATCH_DIR, ref.file) for ref in generation.match.shards]
    games = [each for each in shards if isinstance(each, GameColumns)]
    if not games or len(games) < len(shards):
        return  # the checks of data and manifests report missing and unreadable shards
    rules, restore_shard = rules_of(params.game), RESTORE_OBJECT.format(tag=generation.tag)
    wrong = False
    for ref, each in zip(generation.match.shards, games, strict=True):
        where, what = f"{MATCH_DIR}/{ref.file.path}", "actions of a position"
        for mismatch in differs(where, what, each.num_actions, rules.num_actions, restore_shard):
            wrong = True
            yield mismatch
    if wrong:
        return  # shards of other rules can neither be joined nor replayed
    columns = concatenate(games)
    judged = adjudicate(rules, columns)
    for index in judged.violating_games[:1]:
        fault = f"{violation_text(rules, columns, judged, int(index))}, at move {judged.violation_move[index]}"
        what = f"{len(judged.violating_games)} games against the rules, first game {columns.game[index]}"
        yield Mismatch(MATCH_DIR, what, fault, "a game by the rules", restore_shard)
    counted = match_result(columns._replace(outcome=judged.outcome))
    ledger_remedy = "restore the ledger from the last tag at which `zero audit` passes"
    recorded = generation.decision.match if generation.decision else None
    for where, found, restore in (
        (GATING_METRICS, recorded, remedy),
        (LEDGER_FILE, entry.decision.match, ledger_remedy),
    ):
        yield from differing_fields(where, " of the match", found, counted, MatchResult.model_fields, restore)


def _check_decision(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The ledger's decision equals that in the metrics, follows from its match, and was applied."""
    entry, params = generation.entry, generation.params
    assert entry is not None and entry.decision is not None
    recorded, decision = generation.decision, entry.decision
    if recorded is None:
        yield Mismatch(GATING_METRICS, "decision", "none that can be read", "the ledger's", remedy)
    else:
        names = [name for name in PromotionDecision.model_fields if name != "match"]  # both matches are counted again
        yield from differing_fields(GATING_METRICS, " against the ledger", recorded, decision, names, remedy)
    where = f"{LEDGER_FILE}, {generation.tag}"
    if params is not None:
        yield from differs(where, "threshold against params.yaml", decision.threshold, params.gating.threshold, remedy)
    yield from differs(
        where, "decision against its match", decision.promoted, decide(decision.match, decision.threshold), remedy
    )
    before = generation.previous.entry if generation.previous else None
    if before is not None:
        champion = decision.challenger if decision.promoted else before.champion
        number = generation.number if decision.promoted else before.champion_generation
        yield from differs(where, "champion after the decision", entry.champion, champion, remedy)
        yield from differs(where, "generation of the champion", entry.champion_generation, number, remedy)


def check_parent(generation: Generation) -> Iterator[Mismatch]:
    """Champion, trainee and window at its start are those that were left to it; the challenger is its own."""
    entry = generation.entry
    if entry is None:
        return
    remedy = f"see `git log -p {generation.tag} -- state`"
    state = generation.previous.next_state if generation.previous else None
    if entry.kind in ("start", "branch", "rollback"):
        state = generation.next_state  # its commit holds the state that it set up
    if state is None:
        return
    where, champion = f"{LEDGER_FILE}, {generation.tag}", generation.champion
    if entry.decision is not None:
        yield from differs(where, "champion of the match", entry.decision.champion, state.champion, remedy)
    if generation.source is not None and generation.source.next_state is not None:
        names = ("champion", "champion_generation", "trainee")
        yield from differing_fields(where, "", entry, generation.source.next_state, names, remedy)
    if champion is not None:
        where = f"{CHAMPION_DIR}.dvc"
        yield from differs(where, "champion", champion.weights.sha256, state.champion, remedy)
        yield from differs(where, "its generation", champion.generation, state.champion_generation, remedy)
    if generation.commit is not None:
        yield from _check_identity(generation, state, remedy)
        yield from _check_handed_on(generation, remedy)
    yield from _check_player(generation, state, remedy)
    yield from _check_networks(generation, remedy)
    yield from _check_start(generation, remedy)
    yield from _check_branched_window(generation, remedy)
    if generation.trainee is not None:
        found = generation.trainee.continued_weights.sha256
        yield from differs(f"{TRAINEE_DIR}.dvc", "trainee", found, state.trainee, remedy)
    if generation.challenger is not None and entry.decision is not None:
        where = CHALLENGER_DIR
        yield from differs(where, "challenger", generation.challenger.weights.sha256, entry.decision.challenger, remedy)
        yield from differs(where, "trainee", generation.challenger.continued_weights.sha256, entry.trainee, remedy)
        yield from _check_restart(generation, generation.challenger, remedy)
    yield from _check_dependencies(generation, remedy)
    yield from _check_source(generation)


def _check_restart(generation: Generation, challenger: Checkpoint, remedy: str) -> Iterator[Mismatch]:
    """A challenger restarts if and only if its training was dead, and then repeats the trainee."""
    health = None
    with suppress(StorageError):  # the check of the attestation reports a damaged file
        health = generation.health
    if health is not None:
        dead = str(health.verdict == "dead")
        yield from differs(CHALLENGER_DIR, "restart", str(challenger.restarts), dead, remedy)
    if challenger.restarts and generation.trainee is not None:
        kept = generation.trainee
        for name, found, expected in (
            ("trainee", challenger.continued_weights.sha256, kept.continued_weights.sha256),
            ("optimizer of the trainee", challenger.optimizer.sha256, kept.optimizer.sha256),
            ("average of the trainee", challenger.continued_average.sha256, kept.continued_average.sha256),
            ("step of the trainee", challenger.step, kept.step),
        ):
            yield from differs(CHALLENGER_DIR, name, found, expected, remedy)


def _check_identity(generation: Generation, state: State, remedy: str) -> Iterator[Mismatch]:
    """`state/generation.json` names this generation, and the threshold and player that the state gives."""
    found, kind = generation.generation_id, generation.entry.kind if generation.entry else ""
    if found is None:
        yield Mismatch(GENERATION_FILE, "generation", UNREADABLE, generation.tag, remedy)
        return
    number = generation.number + (kind == "start")  # generation 0 holds the file of generation 1
    for what, value, expected in (
        ("lineage", found.lineage, generation.lineage),
        ("number", found.number, number),
        ("player", found.player, state.player),
        ("resignation threshold", found.resign_threshold, state.resign_threshold),
    ):
        if what != "resignation threshold" or expected is not None:  # None: the record does not hold it
            yield from differs(GENERATION_FILE, what, value, expected, remedy)


def _check_handed_on(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The state's folders are those that were left, with every file: optimizer and manifests too."""
    kind = generation.entry.kind if generation.entry else ""
    origin = generation.previous if kind == "decision" else generation.source
    if origin is None or origin.next_state is None:
        return
    for path, md5 in origin.next_state.md5.items():
        if kind != "branch" or path != OLD_WINDOW_DIR:  # a branch writes its own manifest of the window
            found = generation.state_outs[path].md5 if path in generation.state_outs else None
            yield from differs(f"{path}.dvc", f"MD5 against what {origin.tag} left", found, md5, remedy)


def _check_player(generation: Generation, state: State, remedy: str) -> Iterator[Mismatch]:
    """With overlapping self-play, the player is the champion with which the previous generation started."""
    found = generation.player
    md5 = generation.md5_of(CHAMPION_DIR, f"{PLAYER_NAME}/{MANIFEST_FILE}")
    if generation.champion is None or (found is None and md5 is not None):
        return  # the check of data reports missing files
    yield from differs(f"{CHAMPION_DIR}.dvc", PLAYER_DIR, found.weights.sha256 if found else None, state.player, remedy)
    if found is not None and state.player_generation is not None:
        yield from differs(f"{CHAMPION_DIR}.dvc", "its generation", found.generation, state.player_generation, remedy)


def _check_networks(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The network of champion and player is that of the checkpoint from which the champion came."""
    kind, params = generation.entry.kind if generation.entry else "", generation.params
    expected: NetworkParams | None = None
    if kind == "start":
        expected = params.network if params else None
    elif (origin := generation.previous if kind == "decision" else generation.source) is not None:
        decision = origin.entry.decision if origin.entry else None
        made = origin.challenger if decision is not None and decision.promoted else origin.champion
        expected = made.network if made is not None else None
    # A lineage never changes its network, so the player has it too.
    for folder, found in ((CHAMPION_DIR, generation.champion), (PLAYER_DIR, generation.player)):
        if found is not None and expected is not None:
            where, fields = f"{folder}/{MANIFEST_FILE}", NetworkParams.model_fields
            yield from differing_fields(where, " of its network", found.network, expected, fields, remedy)


def _check_start(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The manifests of a start follow from its parameters and its dataset, since no attestation names their digests."""
    params, trainee, window = generation.params, generation.trainee, generation.old_window
    if generation.entry is None or generation.entry.kind != "start" or params is None:
        return
    for folder, manifest in ((TRAINEE_DIR, trainee), (OLD_WINDOW_DIR, window)):
        if manifest is not None:
            origin = Origin(
                stage="new",
                lineage=generation.lineage,
                generation=0,
                seed=params.seed,
                params_digest=params_digest(params),
                engine=manifest.origin.engine,  # nothing is computed from it
                inputs=manifest.origin.inputs if folder == OLD_WINDOW_DIR else {},  # the check of data compares them
            )
            where, fields = f"{folder}/{MANIFEST_FILE}", Origin.model_fields
            yield from differing_fields(where, " of its origin", manifest.origin, origin, fields, remedy)
    if trainee is not None:
        first = Checkpoint(
            origin=trainee.origin,
            network=params.network,
            step=0,
            learning_rate_factor=1.0,
            weights=trainee.weights,
            optimizer=trainee.optimizer,
        )
        where, fields = f"{TRAINEE_DIR}/{MANIFEST_FILE}", Checkpoint.model_fields
        yield from differing_fields(where, "", trainee, first, fields, remedy)
    files = _imported_files(generation)
    if window is not None and files is not None:
        yield from _compare_windows(window, first_window(files, window.origin), remedy)


def _imported_files(generation: Generation) -> Sequence[DatasetFile] | None:
    """The files of the dataset whose games the first window holds; None if its manifest cannot be read."""
    if generation.params is not None and not generation.params.dataset:
        return ()
    out = generation.dataset_out
    dataset = read_model(Dataset, generation.manifest_bytes(out.path)) if out is not None else None
    return [file for file in dataset.files if file.split == "train"] if dataset is not None else None


def _check_branched_window(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The window of a branch is the one that its source left, with an origin of its own."""
    entry, source, window = generation.entry, generation.source, generation.old_window
    if entry is None or entry.kind != "branch" or source is None or source.entry is None or window is None:
        return
    folder = WINDOW_DIR if source.entry.kind == "decision" else OLD_WINDOW_DIR
    content, left = source.manifest_bytes(folder), source.window if folder == WINDOW_DIR else source.old_window
    if content is None or left is None:
        return  # the check of data reports missing and unreadable manifests
    made = {"stage": "branch", "lineage": generation.lineage, "generation": generation.number}
    origin = left.origin.model_copy(update=made | {"inputs": {source.tag: sha256_bytes(content)}})
    yield from _compare_windows(window, left.model_copy(update={"origin": origin}), remedy)


def _compare_windows(window: Window, expected: Window, remedy: str) -> Iterator[Mismatch]:
    where = f"{OLD_WINDOW_DIR}/{MANIFEST_FILE}"
    yield from compare_window_shards(where, window.shards, expected.shards, remedy)
    yield from differing_fields(where, "", window, expected, ("num_games", "num_positions"), remedy)
    fields = Origin.model_fields
    yield from differing_fields(where, " of its origin", window.origin, expected.origin, fields, remedy)


def _check_dependencies(generation: Generation, remedy: str) -> Iterator[Mismatch]:
    """The inputs of the stages in dvc.lock are the state's folders and the outputs of earlier stages."""
    for name, stage in generation.stages.items() if generation.outs else ():
        for dep in listed(stage, "deps"):
            out = generation.out(str(dep.get("path")))
            if out is not None:
                yield from differs("dvc.lock", f"{name} reads {out.path}", dep.get("md5"), out.md5, remedy)


def _check_source(generation: Generation) -> Iterator[Mismatch]:
    """A rollback or a branch names its source generation as the record has it."""
    entry, source = generation.entry, generation.source
    if entry is None or entry.source is None:
        return
    where, remedy = f"{LEDGER_FILE}, {generation.tag}", "see `git log` of both lineages"
    if source is None or source.line is None:
        yield Mismatch(where, "source", "no such generation", entry.source.tag, remedy)
        return
    yield from differs(where, "tag of its source", entry.source.tag, source.tag, remedy)
    yield from differs(where, "commit of its source", entry.source.commit, source.commit, remedy)
    yield from differs(where, "entry of its source", entry.source.line, source.line.digest, remedy)

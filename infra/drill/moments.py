"""The named moments of the drill: what a process is about to do, or has just done, when it is killed.

Declared, not hooked: `hook/sitecustomize.py` recognises them by what Python itself tells of a running process.
"""

import re
from typing import Literal, NamedTuple

LINEAGE = "tiny"

Victim = Literal["group", "self", "parent"]
"""Who gets SIGKILL: all processes of the command (as a power cut or the end of a session), this one, or its parent."""

PREPARE, ADVANCE, NEW, RESTORE = (rf"^-m zero {word}\b" for word in ("prepare", "advance", "new", "restore"))
REGISTRY = r"^-m zero (prepare|advance)\b"
"""What follows the commit of a generation is done by either."""
REPRO, PUSH, ADD = (rf"^-m dvc {word}\b" for word in ("repro", "push", "add"))


class Moment(NamedTuple):
    """A moment at which a process is killed."""

    name: str
    process: str
    """Regular expression of `command line < command line of its parent`, each from after the interpreter."""
    event: Literal["read", "write", "rename", "link", "remove", "mkdir", "run", "import"]
    target: str
    """Regular expression of the file (its new name, when it is renamed), or of the command that is started."""
    when: str = "before"
    """"before" it happens, "after" it (at the next event), seconds later ("0.3"), or when a file "appears"."""
    victim: Victim = "group"
    nth: int = 1
    """Which of the matching events of one process it is."""
    last_run: str = ""
    """Regular expression of the last command that the process has started."""
    appears: str = ""


def stage_of(name: str) -> str:
    """Regular expression of the process of a stage."""
    return rf"^-m zero {name} <"


def worker_of(stage: str) -> str:
    """Regular expression of the processes that play shards for a stage."""
    return rf"^-m zero worker < .*-m zero {stage}$"


def whole_file(name: str, process: str, target: str) -> list[Moment]:
    """A file that is written under another name and renamed: its draft is empty; it is written, but not renamed."""
    folder, _, file = target.rpartition("/")
    draft = rf"{folder}/\.{file}\.[^/]*$" if folder else rf"/\.{file}\.[^/]*$"
    return [
        Moment(f"{name}: draft opened", process, "write", draft, "after"),
        Moment(f"{name}: before rename", process, "rename", rf"{target}$"),
    ]


def played(stage: str, folder: str, metrics: str) -> list[Moment]:
    """Moments of a stage that plays shards."""
    shard = r"store/shards/../[0-9a-f]+\.[0-9a-f]+\.parquet"
    here, worker = stage_of(stage), worker_of(stage)
    return [
        Moment(f"{stage}: before a worker starts", here, "run", r"-m zero worker$"),
        Moment(f"{stage}: the dvc process dies, the stage lives", here, "run", r"-m zero worker$", victim="parent"),
        Moment(f"{stage}: mid-shard", worker, "read", r"store/weights/", "0.15"),
        Moment(f"{stage}: mid-shard, the worker alone", worker, "read", r"store/weights/", "0.1", "self"),
        Moment(f"{stage}: mid-shard, the stage alone", worker, "read", r"store/weights/", "0.1", "parent"),
        Moment(f"{stage}: receipt opened", worker, "write", r"store/receipts/../\.", "after"),
        Moment(f"{stage}: before receipt is renamed", worker, "rename", r"store/receipts/"),
        Moment(f"{stage}: shard opened", worker, "write", r"store/shards/../\.", "after"),
        Moment(f"{stage}: before shard is renamed", worker, "rename", rf"{shard}$"),
        Moment(f"{stage}: shard is in the store", worker, "rename", rf"{shard}$", "after"),
        Moment(
            f"{stage}: last shard is in the store, the worker alone", worker, "rename", rf"{shard}$", "after", "self"
        ),
        *whole_file(f"{stage}: manifest of the games", here, rf"{folder}/manifest\.json"),
        Moment(f"{stage}: second shard copied", here, "rename", rf"{folder}/shard-0001\.parquet$", "after"),
        *whole_file(f"{stage}: metrics", here, rf"metrics/{metrics}"),
        *recorded_by_dvc(stage),
    ]


def recorded_by_dvc(stage: str) -> list[Moment]:
    """DVC takes what a stage wrote into its cache and its lock."""
    during = rf"-m zero {stage}$"
    return [
        Moment(f"{stage}: dvc writes to its cache", REPRO, "write", r"dvc-cache/files/md5/", "after", last_run=during),
        Moment(f"{stage}: dvc.lock cut short", REPRO, "write", r"(^|/)dvc\.lock$", "after", last_run=during),
        Moment(f"{stage}: dvc.lock written", REPRO, "write", r"(^|/)dvc\.lock$", "0.02", last_run=during),
        Moment(f"{stage}: dvc's rwlock cut short", REPRO, "write", r"tmp/rwlock$", "after", last_run=during),
    ]


def generation_moments(home: str, number: int) -> list[Moment]:
    """All named moments of a generation, from `zero prepare` to `zero advance`. `home`: folder of the project."""
    workspace = f"{home}/.zero/workspaces/{LINEAGE}"
    tag = f"{LINEAGE}/gen-{number:04d}"
    training = stage_of("training")
    checkpoint = r"\.zero/training-[0-9a-f]+/"
    return [
        Moment("prepare: before git status", PREPARE, "run", r"^git status"),
        Moment("prepare: before git ls-remote", PREPARE, "run", r"^git ls-remote"),
        Moment("dvc repro: rwlock cut short", REPRO, "write", r"tmp/rwlock$", "after"),
        Moment("dvc repro: before the first stage", REPRO, "run", r"-m zero selfplay$"),
        *whole_file("selfplay: weights in the store", stage_of("selfplay"), r"store/weights/[0-9a-f]+\.safetensors"),
        *played("selfplay", "data/games", r"selfplay\.json"),
        Moment("replay: begins", stage_of("replay"), "import", r"^zero\.replay$"),
        *whole_file("replay: window manifest", stage_of("replay"), r"data/window/manifest\.json"),
        Moment("replay: a shard linked", stage_of("replay"), "link", r"data/window/", "after"),
        *recorded_by_dvc("replay"),
        Moment("training: before the first step", training, "import", r"^zero\.training$", "0.5"),
        *whole_file("training: checkpoint weights", training, rf"{checkpoint}weights-[0-9]+\.safetensors"),
        *whole_file("training: checkpoint", training, rf"{checkpoint}manifest\.json"),
        Moment("training: first checkpoint is there", training, "rename", rf"{checkpoint}manifest\.json$", "after"),
        Moment(
            "training: second checkpoint, the stage alone", training, "rename", rf"{checkpoint}manifest", "0.02", "self"
        ),
        *whole_file("training: challenger weights", training, r"models/challenger/weights\.safetensors"),
        *whole_file("training: metrics", training, r"metrics/training\.json"),
        *whole_file("training: curve", training, r"plots/training\.csv"),
        *whole_file("training: challenger manifest", training, r"models/challenger/manifest\.json"),
        Moment("training: before its checkpoints go", training, "remove", r"\.zero/training-"),
        *recorded_by_dvc("training"),
        *whole_file("gating: weights in the store", stage_of("gating"), r"store/weights/[0-9a-f]+\.safetensors"),
        *played("gating", "data/match", r"gating\.json"),
        Moment("verification: begins", stage_of("verification"), "import", r"^zero\.verification$"),
        Moment(
            "verification: a worker plays again",
            worker_of("verification"),
            "read",
            r"zero-store-|verification|/weights/",
            "0.1",
        ),
        *whole_file("verification: metrics", stage_of("verification"), r"metrics/verification\.json"),
        *recorded_by_dvc("verification"),
        Moment("advance: before dvc status", ADVANCE, "run", r"-m dvc status"),
        *whole_file("advance: provenance", ADVANCE, r"record/provenance[^/]*"),
        *whole_file("advance: ledger", ADVANCE, r"record/ledger\.jsonl"),
        Moment("advance: before git add", ADVANCE, "run", r"^git add"),
        Moment("advance: in git add", ADVANCE, "run", r"^git add", "appears", appears=f"{workspace}/.git/index.lock"),
        Moment("advance: before git commit", ADVANCE, "run", r"^git commit"),
        Moment(
            "advance: in git commit, index",
            ADVANCE,
            "run",
            r"^git commit",
            "appears",
            appears=f"{workspace}/.git/index.lock",
        ),
        Moment(
            "advance: in git commit, branch",
            *(ADVANCE, "run", r"^git commit", "appears"),
            appears=f"{workspace}/.git/refs/heads/lineage/{LINEAGE}.lock",
        ),
        Moment("advance: before git tag", REGISTRY, "run", rf"^git tag {tag}"),
        Moment(
            "advance: in git tag",
            *(REGISTRY, "run", rf"^git tag {tag}", "appears"),
            appears=f"{workspace}/.git/refs/tags/{tag}.lock",
        ),
        Moment("advance: before dvc push", REGISTRY, "run", r"-m dvc push"),
        Moment("advance: in dvc push", PUSH, "import", r"^dvc\.repo\.push$", "0.1"),
        Moment("advance: dvc push dies alone", PUSH, "import", r"^dvc\.repo\.push$", victim="self"),
        Moment("advance: before the note", REGISTRY, "run", r"^git notes"),
        Moment("advance: after the note", REGISTRY, "run", r"^git notes", "0.03"),
        Moment("advance: before git push", REGISTRY, "run", r"^git push"),
        Moment("advance: in git push, at once", REGISTRY, "run", r"^git push", "0.01"),
        Moment(
            "advance: in git push, branch",
            *(REGISTRY, "run", r"^git push", "appears"),
            appears=f"{home}/.git/refs/heads/lineage/{LINEAGE}.lock",
        ),
        Moment(
            "advance: in git push, tag",
            *(REGISTRY, "run", r"^git push", "appears"),
            appears=f"{home}/.git/refs/tags/{tag}.lock",
        ),
        Moment("advance: before the state is rolled", REGISTRY, "mkdir", r"state/\.\w+\.next$"),
        Moment("advance: champion being built", REGISTRY, "rename", r"state/\.champion\.next/manifest\.json$"),
        Moment("advance: champion taken away", REGISTRY, "remove", r"state/champion$", "after"),
        Moment("advance: champion in its place", REGISTRY, "rename", r"state/champion$", "after"),
        Moment("advance: trainee taken away", REGISTRY, "rename", r"state/trainee$"),
        Moment("advance: window being linked", REGISTRY, "rename", r"state/\.replay\.next/[^/]+\.parquet$", "after"),
        Moment("advance: window in its place", REGISTRY, "rename", r"state/replay$", "after"),
        Moment("advance: before dvc add", REGISTRY, "run", r"-m dvc add"),
        Moment("advance: dvc add, rwlock cut short", ADD, "write", r"tmp/rwlock$", "after"),
        Moment("advance: dvc add, champion.dvc cut short", ADD, "write", r"state/champion\.dvc$", "after"),
        Moment("advance: dvc add, trainee.dvc cut short", ADD, "write", r"state/trainee\.dvc$", "after"),
        Moment("advance: dvc add, replay.dvc alone", ADD, "write", r"state/replay\.dvc$", "after", "self"),
        Moment("advance: dvc add, .gitignore cut short", ADD, "write", r"state/\.gitignore$", "after"),
        *whole_file("advance: generation.json", REGISTRY, r"state/generation\.json"),
        Moment("advance: done but for its answer", ADVANCE, "rename", r"state/generation\.json$", "after"),
    ]


def new_lineage_moments(home: str) -> list[Moment]:
    """Named moments of `zero new`, and of `zero restore` where it has to finish the work."""
    built = rf"workspaces/{LINEAGE}$"
    return [
        Moment("new: before git clone", NEW, "run", r"^git clone"),
        Moment("new: in git clone", NEW, "run", r"^git clone", "0.02"),
        Moment("new: before dvc config", NEW, "run", r"-m dvc config"),
        Moment("new: dvc's configuration cut short", r"^-m dvc (config|remote)", "write", r"\.dvc/config", "after"),
        *whole_file("new: first weights", NEW, r"state/champion/weights\.safetensors"),
        *whole_file("new: ledger", NEW, r"record/ledger\.jsonl"),
        Moment("new: before dvc add", NEW, "run", r"-m dvc add"),
        Moment("new: dvc add cut short", ADD, "write", r"\.dvc$", "after"),
        Moment("new: before git commit", NEW, "run", r"^git commit"),
        Moment("new: before git tag", NEW, "run", rf"^git tag {LINEAGE}/gen"),
        Moment("new: in dvc push", PUSH, "import", r"^dvc\.repo\.push$", "0.1"),
        Moment("new: before git push", NEW, "run", r"^git push"),
        Moment(
            "new: in git push",
            *(NEW, "run", r"^git push", "appears"),
            appears=f"{home}/.git/refs/tags/{LINEAGE}/gen-0000.lock",
        ),
        Moment("new: before the workspace has its name", NEW, "rename", built),
        Moment("new: in dvc pull of the restoring", r"^-m dvc pull", "import", r"^dvc\.repo\.pull$", "0.1"),
        Moment("new: before the restored workspace has its name", RESTORE, "rename", built),
    ]


def matching(moments: list[Moment], words: str) -> list[Moment]:
    """Those whose name has a match of a regular expression."""
    return [moment for moment in moments if re.search(words, moment.name)]

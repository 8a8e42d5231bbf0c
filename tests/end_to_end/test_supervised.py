"""A lineage that starts from imported games: supervised learning, then self-play from there."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.lineages import ALWAYS, QUICKLY, Lineage, change_params, copy_of, make_generation, tiny_of
from tests.end_to_end.project import dvc, edit_params, git, make_project, zero, zero_in_turn
from tests.parameters import smoke_text
from zero.audit import audit
from zero.audit.impact import impact
from zero.config.params import parse_params
from zero.data.dataset.manifest import Dataset
from zero.errors import ZeroError
from zero.lineage.imported import copy_dataset
from zero.record.provenance import read_envelope
from zero.storage.files import read_manifest, sha256_file
from zero.storage.layout import PROVENANCE_FILE
from zero.storage.manifests import Window

DATASET = "datasets/made"
POINTS = [f"{column}{row}" for i, column in enumerate("abcde") for j, row in enumerate("abcde") if (i + j) % 2 == 0]
"""Points of which no two are neighbours, so that stones are never taken."""


def made_games(count: int) -> Iterator[str]:
    for number in range(count):
        draw = random.Random(number)
        points = draw.sample(POINTS, draw.randint(10, len(POINTS)))
        moves = "".join(f";{'BW'[t % 2]}[{point}]" for t, point in enumerate(points))
        yield f"(;GM[1]FF[4]SZ[5]KM[0.5]RE[{draw.choice('BW')}+R]{moves})\n"


def params(dataset: str = DATASET, **changes: object) -> str:
    values = QUICKLY | {"gating__threshold": ALWAYS, "executor__num_processes": 1, "selfplay__num_games": 0} | changes
    return json.dumps(json.loads(edit_params(smoke_text(), **values)) | {"dataset": dataset})


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """A project with a dataset that is not committed, and without a lineage."""
    home = tmp_path_factory.mktemp("supervised") / "home"
    make_project(home)
    (home / "games.sgf").write_text("".join(made_games(60)))
    (home / "smoke.yaml").write_text(params())
    zero(home, "import", "games.sgf", "--out", DATASET, "--params", "smoke.yaml")
    return tiny_of(home)


@pytest.fixture(scope="module")
def committed(imported: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """The same project with the dataset committed."""
    lineage = copy_of(imported, tmp_path_factory.mktemp("committed"))
    dvc(lineage.home, "add", "--quiet", DATASET)
    git(lineage.home, "add", f"{DATASET}.dvc", "datasets/.gitignore")
    git(lineage.home, "commit", "--quiet", "-m", "a dataset")
    return lineage


@pytest.fixture(scope="module")
def learned(committed: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generation 1 learned from the dataset; generation 2 from its own games too."""
    lineage = copy_of(committed, tmp_path_factory.mktemp("learned"))
    made = zero(lineage.home, "new", "tiny", "--params", "smoke.yaml", ZERO_PROGRESS="json")
    number = read_manifest(lineage.home / DATASET, Dataset).splits["train"].num_games
    event = {"event": "progress", "stage": "dataset", "done": number, "total": number}
    assert json.loads(made.stdout.splitlines()[0]) == event
    make_generation(lineage)
    change_params(lineage, selfplay__num_games=24, verification__shard_fraction=0.0)
    shutil.rmtree(lineage.workspace / DATASET)  # nothing needs it after generation 0
    make_generation(lineage)
    return lineage


def window_of(lineage: Lineage) -> dict[int, int]:
    """Number of games in the workspace's window by the generation that they are from."""
    counts: dict[int, int] = {}
    for row in read_manifest(lineage.workspace / "state/replay", Window).shards:
        counts[row.shard.generation] = counts.get(row.shard.generation, 0) + row.shard.num_games - row.skip_games
    return counts


def test_the_network_learns_from_the_training_split_alone(learned: Lineage) -> None:
    dataset = read_manifest(learned.home / DATASET, Dataset)
    metrics = {
        name: json.loads(learned.show("tiny/gen-0001", f"metrics/{name}.json")) for name in ("selfplay", "training")
    }
    assert metrics["selfplay"]["num_games"] == 0
    # the window of the preset holds 36 games
    assert dataset.splits["train"].num_games > metrics["training"]["window_games"] == 36
    assert json.loads(learned.show("tiny/gen-0001", "metrics/gating.json"))["promoted"]


def test_self_play_goes_on_from_there(learned: Lineage) -> None:
    assert window_of(learned) == {0: 12, 2: 24}


def test_the_attestation_names_the_dataset(learned: Lineage) -> None:
    attestation = read_envelope(learned.show("tiny/gen-0000", PROVENANCE_FILE).encode(), "it").attestation
    assert attestation.dependencies["dataset"].sha256 == sha256_file(learned.home / DATASET / "manifest.json")
    names = {name for name in attestation.dependencies if name.startswith("state/replay/")}
    assert names == {"state/replay/train-00000.parquet"}


def test_the_record_is_complete(learned: Lineage) -> None:
    found = audit(learned.home)
    assert not found.findings, [finding.line() for finding in found.findings]


def test_the_dataset_affects_what_learned_from_it(learned: Lineage) -> None:
    found = impact(learned.home, sha256_file(learned.home / DATASET / "manifest.json"))
    assert {use.tag: use.how for use in found.uses} == {
        "tiny/gen-0000": "directly",
        "tiny/gen-0001": "by descent",
        "tiny/gen-0002": "by descent",
    }
    assert any("data/window/train-00000.parquet" in reason for reason in found.uses[1].reasons)


@pytest.mark.parametrize("tag", ["tiny/gen-0000", "tiny/gen-0001"])
def test_a_generation_that_learned_from_a_dataset_is_made_again(learned: Lineage, tag: str) -> None:
    assert json.loads(zero(learned.home, "reproduce", tag, "--json").stdout)["equal"]


def test_the_networks_are_evaluated_on_the_test_split(learned: Lineage) -> None:
    found = json.loads(zero(learned.home, "evaluate", "tiny", "--json").stdout)
    games = {each["generation"]: {one["games"] for one in each["evaluations"]} for each in found}
    assert games == {1: {"later-1", "test"}, 2: {"own", "test"}}
    tests = [one["metrics"] for each in found for one in each["evaluations"] if one["games"] == "test"]
    positions = read_manifest(learned.home / DATASET, Dataset).splits["test"].num_positions
    assert {each["num_positions"] for each in tests} == {positions}


def test_a_changed_object_of_the_dataset_is_reported(learned: Lineage, tmp_path: Path) -> None:
    lineage = copy_of(learned, tmp_path)
    content = (lineage.home / DATASET / "manifest.json").read_bytes()
    stored = (path for path in (lineage.home / ".zero/dvc-cache/files").rglob("*") if path.is_file())
    path = next(path for path in stored if path.read_bytes() == content)
    path.chmod(0o644)
    path.write_bytes(content + b"\n")
    lines = [finding.line() for finding in audit(lineage.home).findings]
    assert {line.split(":")[0] for line in lines} >= {"tiny/gen-0000 data"}
    assert any(f"{DATASET}/manifest.json: SHA-256 against the first window" in line for line in lines)


def test_networks_of_two_lineages_are_compared(learned: Lineage, tmp_path: Path) -> None:
    lineage = copy_of(learned, tmp_path)
    zero(lineage.home, "branch", "tiny", "tiny/gen-0001", "kid")
    words = ("compare", "tiny", "kid", "--games", "4", "--simulations", "2")
    as_json, shown = (done.stdout for done in zero_in_turn(lineage.home, (*words, "--json"), words))
    found = json.loads(as_json)
    rows = {each["lineage"]: each for each in found["networks"]}
    assert {name: each["generation"] for name, each in rows.items()} == {"tiny": 2, "kid": 1}
    assert rows["tiny"]["num_weights"] == rows["kid"]["num_weights"] > 1000
    positions = {name: row["test"]["num_positions"] for name, row in rows.items()}  # kid has the champion of its source
    assert positions["kid"] == positions["tiny"] > 0
    folder = Path(shown.splitlines()[-1].removeprefix("table and picture: "))
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "comparison.json").read_text()) == found


def refusal(home: Path) -> str:
    """The error of `zero new`, which leaves nothing behind."""
    done = zero(home, "new", "tiny", "--params", "smoke.yaml", check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert not (home / ".zero/workspaces/tiny").exists()
    return done.stderr


def test_a_dataset_must_be_committed(imported: Lineage) -> None:
    assert f"{DATASET} is not committed" in refusal(imported.home)


def test_a_dataset_must_not_have_changed(committed: Lineage, tmp_path: Path) -> None:
    home = copy_of(committed, tmp_path).home
    path = home / DATASET / "rejected.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    assert f"{DATASET} has changed since {DATASET}.dvc was committed" in refusal(home)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "datasets/none"}, "make it with `zero import`"),
        ({"dataset": "/etc"}, "must be a folder inside the project"),
        ({"game__komi": 2.5}, f"dataset = '{DATASET}' has games of"),
    ],
)
def test_a_dataset_must_fit_the_parameters(
    imported: Lineage, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ZeroError, match=message):
        copy_dataset(imported.home, tmp_path, parse_params(params(**changes)))  # type: ignore[arg-type]

"""Self-play that overlaps: a generation's games, played while the one before was still to be trained and gated."""

import json
from pathlib import Path

import pytest

from tests.audit.record import Record
from tests.end_to_end.lineages import ALWAYS, Lineage, change_params, copy_of, make_generation, play_shards
from tests.end_to_end.project import dvc, killed, zero
from zero.data.records import read_records
from zero.record.ledger import read_ledger
from zero.record.provenance import Resource, read_envelope
from zero.storage.files import read_manifest
from zero.storage.layout import GENERATION_FILE, PROVENANCE_FILE
from zero.storage.manifests import GameSet, GenerationId

LEARNING = [{"from_step": 0, "learning_rate": 0.02}]


@pytest.fixture(scope="module")
def overlapped(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generations 3 and 4, both promoted; 4 is played before 3 is trained, and 3 recorded by a call that is killed."""
    lineage = copy_of(recorded, tmp_path_factory.mktemp("overlapped"))
    change_params(lineage, selfplay__overlap=True, gating__threshold=ALWAYS, training__learning_rate=LEARNING)
    zero(lineage.home, "prepare", "tiny")
    dvc(lineage.workspace, "repro", "selfplay")
    ahead = zero(lineage.workspace, "plan", "selfplay", "--next").stdout.splitlines()
    play_shards(lineage, ahead, lineage.home.parent)
    dvc(lineage.workspace, "repro")
    killed(lineage.home, "dvc add", "advance", "tiny")  # the champion has been replaced, nobody has noted it yet
    zero(lineage.home, "prepare", "tiny")
    assert zero(lineage.workspace, "plan", "selfplay", "--missing").stdout == ""
    make_generation(lineage)
    return lineage


def inputs_of(lineage: Lineage, tag: str) -> dict[str, Resource]:
    """What went into a generation, as its signed attestation says."""
    return read_envelope(lineage.show(tag, PROVENANCE_FILE).encode(), tag).attestation.dependencies


def test_the_games_are_by_the_champion_that_stood_when_the_generation_before_began(overlapped: Lineage) -> None:
    ledger, workspace = read_ledger(overlapped.workspace), overlapped.workspace
    earlier, champion = ledger[2].champion, ledger[3].champion
    assert ledger[4].decision is not None and ledger[4].decision.champion == champion != earlier
    games = read_manifest(workspace / "data/games", GameSet)
    for ref in games.shards:
        columns = read_records((workspace / "data/games" / ref.file.path).read_bytes(), ref.file.path)
        assert {*columns.black, *columns.white} == {earlier}
    assert games.origin.inputs == {"champion": earlier}
    inputs = inputs_of(overlapped, "tiny/gen-0004")
    assert (inputs["player"].sha256, inputs["champion"].sha256) == (earlier, champion)
    assert json.loads(overlapped.show("tiny/gen-0004", "state/generation.json"))["player"] == earlier
    assert read_manifest(workspace, GenerationId, GENERATION_FILE).player == champion
    assert "player" not in inputs_of(overlapped, "tiny/gen-0003")  # the first that overlaps: by the champion


def test_games_that_were_played_ahead_are_played_again_to_the_same_bytes(overlapped: Lineage) -> None:
    found = json.loads(zero(overlapped.home, "reproduce", "tiny/gen-0004", "--sample", "1", "--json").stdout)
    assert found["equal"] and [len(stage["outs"]) for stage in found["stages"]] == [1, 1]


def test_what_a_player_affected_includes_the_games_it_played(overlapped: Lineage) -> None:
    earlier = read_ledger(overlapped.workspace)[2].champion
    uses = json.loads(zero(overlapped.home, "impact", earlier, "--json").stdout)["uses"]
    (reasons,) = (use["reasons"] for use in uses if use["tag"] == "tiny/gen-0004")
    assert "uses player" in reasons[0] and "its player was chosen by tiny/gen-0002" in reasons


def test_an_audit_sees_that_others_played_than_the_parameters_say(overlapped: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(overlapped, tmp_path).home)
    params = json.loads(record.read(4, "params.yaml"))
    params["selfplay"]["overlap"] = False
    head = record.rewritten(record.commit(4), {"params.yaml": json.dumps(params).encode()}, f"{record.commit(4)}^")
    record.publish(head, gen_0004=head)
    found = [finding for finding in record.mismatches() if finding.check == "manifests"]
    assert any("Black in 12 games" in finding.what for finding in found), found
    assert any("input champion" in finding.what for finding in found), found


def test_an_audit_sees_that_the_state_names_another_player(overlapped: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(overlapped, tmp_path).home)
    state = json.loads(record.read(4, "state/generation.json"))
    state["player"] = read_ledger(overlapped.workspace)[3].champion
    head = record.rewritten(
        record.commit(4), {"state/generation.json": json.dumps(state).encode()}, f"{record.commit(4)}^"
    )
    record.publish(head, gen_0004=head)
    assert any(each.check == "parent" and each.what == "player" for each in record.mismatches())

"""Yardsticks of a real lineage: what is computable is computed once, kept, shown and drawn."""

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage
from zero.config.params import load_params
from zero.data.records import concatenate, read_records
from zero.data.sgf import SgfGame, read_collection
from zero.errors import LineageError, StorageError
from zero.evaluation.probes import gnugo
from zero.evaluation.probes.filling import fill_in, judging_profile, newest_rules
from zero.evaluation.probes.notebook import yardstick_points
from zero.evaluation.probes.picture import first_moves_png, spread
from zero.evaluation.probes.screen import yardstick_tables
from zero.evaluation.probes.shape import facts_of, shape_of
from zero.evaluation.probes.table import yardsticks_dir
from zero.games.rules import rules_of
from zero.players.networks import weights_path
from zero.record.ledger import read_ledger
from zero.record.lineages import ProjectRecord
from zero.storage.files import read_manifest, write_atomic
from zero.storage.manifests import GameSet


@pytest.fixture
def lineage(recorded: Lineage, tmp_path: Path) -> Lineage:
    """A copy of it; nothing here writes to git or through DVC."""
    home = Path(shutil.copytree(recorded.home, tmp_path / "home", symlinks=True))
    return Lineage(home, home / ".zero/workspaces" / recorded.name)


def places(yardsticks):
    return {(each.who, each.games) for each in yardsticks.yardsticks}


def test_what_has_become_computable_is_filled_in(lineage: Lineage):
    calls = []
    first, second = fill_in(lineage.home, "tiny", lambda done, total: calls.append((done, total)))
    assert (first.generation, second.generation) == (1, 2)
    assert places(first) == {("challenger", "own"), ("challenger", "later-1")}, "it was promoted: it is the champion"
    assert places(second) == {("challenger", "own"), ("champion", "own")}, "it was refused"
    assert calls == [(k, 4) for k in range(5)]
    assert first.find("champion", "later-1") == first.find("challenger", "later-1") is not None
    ledger = read_ledger(lineage.workspace)
    assert ledger[2].decision is not None
    refused, champion = ledger[2].decision.challenger, ledger[1].champion
    assert {(each.who, each.weights) for each in second.yardsticks} == {("challenger", refused), ("champion", champion)}
    assert second.find("champion", "own") == first.find("challenger", "later-1"), "one network, one set of games"
    assert {each.judgement.num_positions for each in second.yardsticks} == {second.shape.num_targets}

    again = []
    assert fill_in(lineage.home, "tiny", lambda *call: again.append(call)) == [first, second]
    assert again == [(0, 0)], "nothing is computed twice"
    path = yardsticks_dir(lineage.home, "tiny") / "gen-0001.json"
    tree = json.loads(path.read_text())
    tree["yardsticks"] = [each for each in tree["yardsticks"] if each["games"] == "own"]
    write_atomic(path, json.dumps(tree).encode())
    assert fill_in(lineage.home, "tiny") == [first, second]
    write_atomic(path, b"{")
    assert fill_in(lineage.home, "tiny") == [first, second], "what cannot be read is made again"


def test_a_champion_that_is_elsewhere_has_no_numbers(lineage: Lineage):
    with ProjectRecord(lineage.home) as chains:
        refused = chains.generations("tiny")[2]
        assert refused.entry is not None
        path = weights_path(refused, refused.entry.champion)
    assert path is not None
    path.unlink()
    second = fill_in(lineage.home, "tiny")[-1]
    assert places(second) == {("challenger", "own")}
    assert second.find("challenger", "own") is not None and second.find("champion", "own") is None


def test_the_shape_is_that_of_the_generations_games(lineage: Lineage):
    shapes = {each.generation: each.shape for each in fill_in(lineage.home, "tiny")}
    folder = lineage.workspace / "data/games"
    refs = read_manifest(folder, GameSet).shards
    games = concatenate(read_records((folder / ref.file.path).read_bytes(), "") for ref in refs)
    assert shapes[2] == shape_of(facts_of(games))
    metrics = json.loads(lineage.show("tiny/gen-0002", "metrics/selfplay.json"))
    assert shapes[2].mean_length == pytest.approx(metrics["mean_length"])
    assert shapes[2].num_targets == metrics["target_positions"]


def test_tables_metrics_and_picture(lineage: Lineage):
    yardsticks = fill_in(lineage.home, "tiny")
    networks, games = yardstick_tables(yardsticks)
    assert (networks.row_count, games.row_count) == (3, 2), "a promoted challenger is shown once"
    names = {point.name for point in yardstick_points(yardsticks[0])}
    assert {"challenger/later-1/policy_accuracy", "champion/own/value_error", "games/mean_length"} <= names
    assert {point.step for point in yardstick_points(yardsticks[1])} == {2}
    rules = rules_of(load_params(lineage.workspace).game)
    png = first_moves_png(rules, yardsticks)
    assert png.startswith(b"\x89PNG") and png == first_moves_png(rules, yardsticks)


def test_pictures_are_spread_over_the_generations():
    assert [each for each in spread(list(range(100)), 12)][::11] == [0, 99]
    assert len(set(spread(list(range(13)), 12))) == 12
    assert spread([1, 2], 12) == [1, 2]


def test_data_that_is_elsewhere_is_left_out_and_altered_data_is_said(lineage: Lineage):
    with ProjectRecord(lineage.home) as chains:
        generations = chains.generations("tiny")
        manifest = generations[2].md5_of("data/games", "manifest.json")
        shard = generations[1].md5_of("data/games", "shard-0000.parquet")
        cache = generations[1].cache
    assert manifest and shard
    cache.path(manifest).unlink()
    (only,) = fill_in(lineage.home, "tiny")
    assert only.generation == 1 and places(only) == {("challenger", "own")}
    yardsticks_dir(lineage.home, "tiny").joinpath("gen-0001.json").unlink()
    path = cache.path(shard)
    data = bytearray(path.read_bytes())
    path.unlink()
    with pytest.raises(StorageError, match="is not on this machine; `dvc pull` in a folder made by `zero checkout"):
        fill_in(lineage.home, "tiny")
    data[100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StorageError, match=r"shard-0000\.parquet of tiny/gen-0001 was altered"):
        fill_in(lineage.home, "tiny")


def test_gnu_gos_games_are_asked_about_where_there_are_some_and_parsed_once(lineage: Lineage, tmp_path, monkeypatch):
    parsed: list[str] = []

    def counted(text: str) -> list[SgfGame]:
        parsed.append(text)
        return read_collection(text)

    text = "(;FF[4]GM[1]SZ[5]KM[0.5]PB[b]PW[w]RE[B+24.5];B[cc];W[];B[aa];W[];B[bb];W[dd];B[ab];W[];B[])"
    (tmp_path / "gnugo5.sgf").write_text(text)
    monkeypatch.setattr(gnugo, "GAMES_FILE", tmp_path / "gnugo5.sgf")
    monkeypatch.setattr(gnugo, "BOARD", 5)
    monkeypatch.setattr(gnugo, "read_collection", counted)
    yardsticks = fill_in(lineage.home, "tiny")
    found = [each.find(who, "gnugo") for each in yardsticks for who in ("challenger", "champion")]
    assert [judged and judged.num_positions for judged in found] == [5] * 4
    assert fill_in(lineage.home, "tiny") == yardsticks and len(parsed) == 1


def test_what_is_kept_costs_no_network_to_be_read(lineage: Lineage, monkeypatch):
    kept = fill_in(lineage.home, "tiny")
    with ProjectRecord(lineage.home) as chains:
        made = chains.generations("tiny")[1]
        network = weights_path(made, made.decision.challenger if made.decision else "")
    assert network
    network.chmod(0o644)
    network.write_bytes(network.read_bytes()[:-1])
    assert fill_in(lineage.home, "tiny") == kept
    yardsticks_dir(lineage.home, "tiny").joinpath("gen-0001.json").unlink()
    with pytest.raises(StorageError, match="of tiny/gen-0001 was altered; delete"):
        fill_in(lineage.home, "tiny")


def test_the_rules_are_those_of_the_newest_recorded_generation(lineage: Lineage):
    expected = rules_of(load_params(lineage.workspace).game)
    (lineage.workspace / "params.yaml").write_text("spoilt: by the next one in the making")
    found = newest_rules(lineage.home, "tiny")
    assert (found.game, found.rows, found.komi) == (expected.game, expected.rows, expected.komi)


def test_an_unknown_lineage_is_named(lineage: Lineage):
    with pytest.raises(LineageError, match="unknown lineage 'nobody'"):
        fill_in(lineage.home, "nobody")


def test_networks_of_a_gpu_are_asked_on_the_cpu(lineage: Lineage):
    profile = load_params(lineage.workspace).profile
    gpu = profile.model_copy(update={"device": "cuda", "precision": "bf16"})
    asked = judging_profile(gpu)
    assert (asked.device, asked.backend, asked.precision) == ("cpu", "openvino", "fp32")
    assert judging_profile(profile.model_copy(update={"isa": "avx2"})) == profile

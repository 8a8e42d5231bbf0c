"""Held-out evaluation: slow counts of metrics, GNU Go's games, results of a real lineage."""

import json
import math
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tests.end_to_end.lineages import Lineage
from tests.made_games import GO5, made_params, made_records
from tests.parameters import profile_params
from zero.config.params import GoParams, load_params
from zero.data.dataset.manifest import Dataset
from zero.data.dataset.options import parse_options
from zero.data.dataset.sources import Found, Item, Report, games_of_file
from zero.data.records import GameColumns, read_records, write_records
from zero.data.sgf import read_collection
from zero.errors import LineageError, StorageError
from zero.evaluation import held_out
from zero.evaluation.held_out import (
    BATCH,
    GNUGO_FILE,
    GNUGO_OPENING_MOVES,
    MIN_PRIOR,
    Evaluation,
    Metrics,
    Network,
    Played,
    _load_or_start,
    _shares,
    _test_games,
    backfill,
    evaluate,
    evaluation_dir,
    evaluation_points,
    evaluation_profile,
    evaluation_table,
    gnugo_games,
    gnugo_positions,
    has_gnugo_games,
    read_evaluation,
    sample_positions,
)
from zero.games.planes import write_sample
from zero.games.position import ENDED, NUM_PLANES, new_history, new_position
from zero.games.rules import go_rules, gomoku_rules, legal_mask, margin, play, rules_of
from zero.network.inference import new_evaluator
from zero.network.weights import new_network, weights_bytes
from zero.players.networks import weights_path
from zero.record.ledger import read_ledger
from zero.record.lineages import ProjectRecord
from zero.search.evaluator import Evaluator
from zero.storage.files import canonical_json, write_atomic, write_manifest
from zero.storage.manifests import FileRef, GameRecord, GameSet

RULES = rules_of(GO5)
GO9 = GoParams(name="go", size=9, komi=7.0, allow_suicide=False)
ALL = 10**6


@pytest.fixture(scope="module")
def records() -> list[GameRecord]:
    """Random games. In the second half every other move has no visits; the last game ended by resignation."""
    records = made_records(RULES, 12, seed=3)
    for k in range(6, 12):
        records[k].visit_counts[1::2] = 0
    return [*records[:-1], records[-1]._replace(end="resignation", margin=0.0)]


@pytest.fixture(scope="module")
def games(records) -> GameColumns:
    return read_records(write_records(records), "made")


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    params = made_params()
    return new_evaluator(weights_bytes(new_network(params.network, GO5, 1)), profile_params())


def slow_metrics(evaluator: Evaluator, records: list[GameRecord]) -> list[tuple[float, float, float, float]]:
    """Accuracy, cross-entropy, squared value error and entropy of each target, one position at a time."""
    found = []
    position, history = new_position(RULES), new_history(RULES)
    for record in records:
        for move, counts in enumerate(record.visit_counts):
            if not counts.any():
                continue
            planes = np.zeros((BATCH, NUM_PLANES, RULES.num_words), np.uint64)
            write_sample(RULES, position, history, record.actions, move, 0, planes[0])
            prior, value = np.zeros((BATCH, RULES.num_actions), np.float32), np.zeros(BATCH, np.float32)
            evaluator.evaluate(planes, prior, value)
            p = [float(x) for x in prior[0]]
            target = [int(c) / int(counts.sum()) for c in counts]
            outcome = record.outcome if move % 2 == 0 else -record.outcome
            found.append(
                (
                    float(p.index(max(p)) == target.index(max(target))),
                    -sum(t * math.log(max(q, MIN_PRIOR)) for t, q in zip(target, p, strict=True)),
                    (float(value[0]) - outcome) ** 2,
                    -sum(q * math.log(max(q, MIN_PRIOR)) for q in p),
                )
            )
    return found


def test_metrics_equal_a_count_position_by_position(evaluator, games, records):
    found = evaluate(evaluator, sample_positions(RULES, games, ALL))
    slow = slow_metrics(evaluator, records)
    assert found.num_positions == len(slow) > BATCH, "more than one batch"
    shown = (found.policy_accuracy, found.cross_entropy, found.value_error, found.entropy)
    assert shown == pytest.approx(np.mean(slow, axis=0).tolist(), rel=1e-5)


def test_positions_are_spread_evenly_over_the_targets(games, records):
    whole, some = sample_positions(RULES, games, ALL), sample_positions(RULES, games, 20)
    num = len(whole.value)
    assert num == sum(int(record.visit_counts.any(axis=1).sum()) for record in records)
    chosen = [k * num // 20 for k in range(20)]
    for name in ("planes", "policy", "value"):
        assert np.array_equal(getattr(some, name), getattr(whole, name)[chosen])


def test_the_shipped_games_are_legal_and_counted_by_our_rules():
    rules = rules_of(GO9)
    games = read_collection(GNUGO_FILE.read_text())
    assert {game.black_name for game in games} | {game.white_name for game in games} == {"GNU Go 3.8 level 10"}
    openings = [game.actions[:GNUGO_OPENING_MOVES] for game in games]
    assert max(openings.count(opening) for opening in openings) <= 2, "two games per random opening"
    read = {tuple(game.actions): game for game in gnugo_games(GO9)}
    assert read.keys() == {game.actions for game in games}
    for game in games:
        position, history, mask = new_position(rules), new_history(rules), np.zeros(rules.num_actions, np.bool_)
        for action in game.actions:
            legal_mask(rules, position, history, mask)
            assert mask[action]
            play(rules, position, history, action)
        if "R" not in game.result:
            assert position.state[ENDED] and read[game.actions].outcome == np.sign(margin(rules, position))


def test_moves_of_gnu_go_after_the_opening_are_the_targets():
    games = {game.actions for game in read_collection(GNUGO_FILE.read_text())}
    num = sum(len(actions) - GNUGO_OPENING_MOVES for actions in games)
    positions = gnugo_positions(GO9)
    assert len(positions.value) == min(num, held_out.NUM_POSITIONS)
    assert np.array_equal(positions.policy.max(axis=1), np.ones(len(positions.value)))


@pytest.mark.parametrize("rules", [go_rules(5, 5), go_rules(9, 8), gomoku_rules(9, 9, 5)])
def test_only_9x9_go_has_games_of_gnu_go(rules):
    assert not has_gnugo_games(rules)
    assert has_gnugo_games(rules_of(GO9))


GAME = "(;FF[4]GM[1]SZ[9]KM[{komi}]PB[b]PW[w]RE[{result}];B[bb];W[];B[cc];W[dd];B[ee])"


@pytest.mark.parametrize(
    "result, komi, outcome",
    [
        *[("B+8.5", 0.5, 1), ("B+2", 0, -1), ("W+3.5", 0.5, -1), ("0", 3, 0), ("B+R", 9, 1), ("B+", 0, 1)],
        *[("", 0, None), ("?", 0, None), ("Void", 0, None)],
    ],
)
def test_an_outcome_is_counted_with_the_komi_of_the_rules(result, komi, outcome, tmp_path, monkeypatch):
    (tmp_path / "games.sgf").write_text(GAME.format(result=result, komi=komi))
    monkeypatch.setattr(held_out, "GNUGO_FILE", tmp_path / "games.sgf")
    found = [game.outcome for game in gnugo_games(GO9.model_copy(update={"komi": 3.0}))]
    assert found == ([] if outcome is None else [outcome])


def computed(result):
    return {(each.network, each.games) for each in result.evaluations}


def test_results_are_computed_once_when_they_become_computable(lineage: Lineage):
    calls = []
    first, second = backfill(lineage.home, "tiny", lambda done, total: calls.append((done, total)))
    assert (first.generation, second.generation) == (1, 2)
    assert computed(first) == {("challenger", "own"), ("challenger", "later-1")}, "promoted: it is the champion"
    assert computed(second) == {("challenger", "own"), ("champion", "own")}, "refused"
    assert calls == [(k, 4) for k in range(5)]
    assert first.find("champion", "later-1") == first.find("challenger", "later-1") is not None
    ledger = read_ledger(lineage.workspace)
    assert ledger[2].decision is not None
    refused, champion = ledger[2].decision.challenger, ledger[1].champion
    expected = {("challenger", refused), ("champion", champion)}
    assert {(each.network, each.weights) for each in second.evaluations} == expected
    assert second.find("champion", "own") == first.find("challenger", "later-1"), "same network, same games"

    again = []
    assert backfill(lineage.home, "tiny", lambda *call: again.append(call)) == [first, second]
    assert again == [(0, 0)], "nothing is computed twice"
    path = evaluation_dir(lineage.home, "tiny") / "gen-0001.json"
    tree = json.loads(path.read_text())
    tree["evaluations"] = [each for each in tree["evaluations"] if each["games"] == "own"]
    write_atomic(path, json.dumps(tree).encode())
    assert backfill(lineage.home, "tiny") == [first, second]
    write_atomic(path, b"{")
    assert backfill(lineage.home, "tiny") == [first, second], "an unreadable file is replaced"


def test_results_of_another_test_split_are_kept_and_not_returned(lineage: Lineage):
    first = backfill(lineage.home, "tiny")[0]
    on_test = first.evaluations[0].model_copy(update={"games": "test", "games_digest": "d" * 64})
    stored, path = first.with_evaluation(on_test), evaluation_dir(lineage.home, "tiny") / "gen-0001.json"
    write_atomic(path, canonical_json(stored))
    assert backfill(lineage.home, "tiny")[0] == first
    assert read_evaluation(path.parent, 1) == stored, "the file keeps them"
    assert stored.with_test_games("d" * 64) == stored and stored.with_test_games("e" * 64) == first
    write_atomic(path, canonical_json(stored.model_copy(update={"version": 3})))
    assert read_evaluation(path.parent, 1) == first, "version 3 had other positions of the test split"
    write_atomic(path, canonical_json(first))


def test_results_of_an_earlier_lineage_with_the_same_games_are_not_those_of_this_one(tmp_path):
    """A lineage that was made again with another training: the same games, other networks, another decision."""
    generation, games = SimpleNamespace(lineage="tiny", number=1), GameSet.model_construct(shards=())
    own, old = "a" * 64, "b" * 64

    def played(**networks: str) -> Played:
        return Played(generation, made_params(), games, "d" * 64, networks)  # type: ignore[arg-type]

    metrics = Metrics(num_positions=1, policy_accuracy=0.5, cross_entropy=1.0, value_error=1.0, entropy=1.0)
    refused = _load_or_start(tmp_path, played(challenger=own, champion=old))
    networks: tuple[tuple[Network, str], ...] = (("challenger", own), ("champion", old))
    for network, weights in networks:
        found = Evaluation(network=network, weights=weights, games="own", games_digest="d" * 64, metrics=metrics)
        refused = refused.with_evaluation(found)
    write_atomic(tmp_path / "gen-0001.json", canonical_json(refused))
    assert _load_or_start(tmp_path, played(challenger=own, champion=old)) == refused
    promoted = _load_or_start(tmp_path, played(challenger=own))
    assert promoted.is_promoted and [each.weights for each in promoted.evaluations] == [own]
    assert promoted.find("champion", "own") == metrics, "of the challenger"
    again = _load_or_start(tmp_path, played(challenger=old, champion="c" * 64))
    assert again.evaluations == () and not again.is_promoted


def test_a_dataset_without_test_games_leaves_them_out_unless_it_is_named(tmp_path):
    ref, options = FileRef(path="r", sha256="f" * 64, num_bytes=0), parse_options(GO5, "", None, 1, "1,0,0", 1)
    dataset = Dataset(
        game=GO5,
        options=options,
        files=(),
        splits={},
        num_read=0,
        num_duplicates=0,
        rejected={},
        rejected_list=ref,
        duplicates_list=ref,
    )
    write_manifest(tmp_path / "games", dataset)
    params = made_params().model_copy(update={"dataset": "games"})
    played = Played(None, params, None, "d" * 64, {})  # type: ignore[arg-type]
    assert _test_games(tmp_path, [played], None) is None
    named = _test_games(tmp_path, [played], tmp_path / "games")
    assert named is not None
    with pytest.raises(StorageError, match="has no games for test; import more games"):
        held_out.test_positions(named.folder, GO5)


def test_shares_are_in_proportion_to_the_positions():
    assert _shares(40, [269, 47]) == [34, 6]
    assert _shares(7, [1, 1, 1]) == [2, 2, 3]


def test_a_champion_without_weights_here_has_no_results(lineage: Lineage):
    with ProjectRecord(lineage.home) as record:
        refused = record.generations("tiny")[2]
        assert refused.entry is not None
        path = weights_path(refused, refused.entry.champion)
    assert path is not None
    path.unlink()
    second = backfill(lineage.home, "tiny")[-1]
    assert computed(second) == {("challenger", "own")}
    assert second.find("challenger", "own") is not None and second.find("champion", "own") is None


def test_table_and_metrics(lineage: Lineage):
    results = backfill(lineage.home, "tiny")
    assert evaluation_table(results).row_count == 3, "a promoted challenger is shown once"
    names = {point.name for point in evaluation_points(results[0])}
    assert {"challenger/later-1/policy_accuracy", "champion/own/value_error"} <= names
    assert {point.step for point in evaluation_points(results[1])} == {2}


def test_missing_games_are_skipped_and_corrupt_games_are_an_error(lineage: Lineage):
    with ProjectRecord(lineage.home) as record:
        generations = record.generations("tiny")
        manifest = generations[2].md5_of("data/games", "manifest.json")
        shard = generations[1].md5_of("data/games", "shard-0000.parquet")
        cache = generations[1].cache
    assert manifest and shard
    cache.path(manifest).unlink()
    (only,) = backfill(lineage.home, "tiny")
    assert only.generation == 1 and computed(only) == {("challenger", "own")}
    evaluation_dir(lineage.home, "tiny").joinpath("gen-0001.json").unlink()
    path = cache.path(shard)
    data = bytearray(path.read_bytes())
    path.unlink()
    with pytest.raises(StorageError, match="is not on this machine; run `dvc pull` in a folder made by `zero checkout"):
        backfill(lineage.home, "tiny")
    data[100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StorageError, match=r"shard-0000\.parquet of tiny/gen-0001 is damaged"):
        backfill(lineage.home, "tiny")


def test_games_of_gnu_go_are_parsed_once(lineage: Lineage, tmp_path, monkeypatch):
    parsed: list[Found] = []

    def counted(found: Found, report: Report) -> Iterator[Item]:
        parsed.append(found)
        return games_of_file(found, report)

    text = "(;FF[4]GM[1]SZ[5]KM[0.5]PB[b]PW[w]RE[B+24.5];B[cc];W[];B[aa];W[];B[bb];W[dd];B[ab];W[];B[])"
    (tmp_path / "gnugo5.sgf").write_text(text)
    monkeypatch.setattr(held_out, "GNUGO_FILE", tmp_path / "gnugo5.sgf")
    monkeypatch.setattr(held_out, "GNUGO_BOARD", 5)
    monkeypatch.setattr(held_out, "games_of_file", counted)
    results = backfill(lineage.home, "tiny")
    found = [each.find(network, "gnugo") for each in results for network in held_out.NETWORKS]
    assert [metrics and metrics.num_positions for metrics in found] == [5] * 4
    assert backfill(lineage.home, "tiny") == results and len(parsed) == 1


def test_a_corrupt_network_is_an_error_only_if_it_is_needed(lineage: Lineage):
    stored = backfill(lineage.home, "tiny")
    with ProjectRecord(lineage.home) as record:
        made = record.generations("tiny")[1]
        network = weights_path(made, made.decision.challenger if made.decision else "")
    assert network
    network.chmod(0o644)
    network.write_bytes(network.read_bytes()[:-1])
    assert backfill(lineage.home, "tiny") == stored
    evaluation_dir(lineage.home, "tiny").joinpath("gen-0001.json").unlink()
    with pytest.raises(StorageError, match="of tiny/gen-0001"):
        backfill(lineage.home, "tiny")


def test_an_unknown_lineage_is_named(lineage: Lineage):
    with pytest.raises(LineageError, match="unknown lineage 'nobody'"):
        backfill(lineage.home, "nobody")


def test_networks_are_evaluated_on_the_cpu_in_fp32(lineage: Lineage):
    profile = load_params(lineage.workspace).profile
    gpu = profile.model_copy(update={"device": "cuda", "precision": "bf16"})
    used = evaluation_profile(gpu)
    assert (used.device, used.backend, used.precision) == ("cpu", "openvino", "fp32")
    assert evaluation_profile(profile.model_copy(update={"isa": "avx2"})) == profile

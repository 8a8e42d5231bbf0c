"""A network against games, and games in numbers: each held against a slow count over the records."""

import math
from collections import Counter

import numpy as np
import pytest

from tests.made_games import GO5, made_params, made_records
from tests.parameters import profile_params
from zero.data.records import GameColumns, read_records, write_records
from zero.evaluation.probes.judge import BATCH, LEAST_PRIOR, join_questions, judge, questions_of
from zero.evaluation.probes.shape import facts_of, join, shape_of
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, new_history, new_position
from zero.games.rules import rules_of
from zero.network.inference import new_evaluator
from zero.network.weights import new_network, weights_bytes
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.storage.manifests import GameRecord

RULES = rules_of(GO5)
ALL = 10**6


@pytest.fixture(scope="module")
def records() -> list[GameRecord]:
    """Games of random moves; in the second half every other move was fast and is no target, and one was resigned."""
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


def slow_judgement(evaluator: Evaluator, records: list[GameRecord]) -> list[tuple[float, float, float, float]]:
    """Right, cross-entropy, squared error and entropy of each target, one position at a time."""
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
                    -sum(t * math.log(max(q, LEAST_PRIOR)) for t, q in zip(target, p, strict=True)),
                    (float(value[0]) - outcome) ** 2,
                    -sum(q * math.log(max(q, LEAST_PRIOR)) for q in p),
                )
            )
    return found


def test_a_network_is_judged_as_position_by_position(evaluator, games, records):
    found = judge(evaluator, questions_of(RULES, games, ALL))
    slow = slow_judgement(evaluator, records)
    assert found.num_positions == len(slow) > BATCH, "more than one batch"
    shown = (found.policy_accuracy, found.cross_entropy, found.value_error, found.entropy)
    assert shown == pytest.approx(np.mean(slow, axis=0).tolist(), rel=1e-5)


def test_who_knows_nothing_is_as_bad_as_it_can_be_told(games):
    found = judge(UniformEvaluator(), questions_of(RULES, games, ALL))
    assert (found.entropy, found.cross_entropy) == pytest.approx((math.log(RULES.num_actions),) * 2, rel=1e-5)
    assert found.value_error == 1.0, "nothing is drawn at komi 0.5"


class Oracle:
    """Knows the answers to these questions."""

    def __init__(self, questions) -> None:
        self.questions, self.at = questions, 0

    def evaluate(self, planes, prior, value) -> None:
        rows = slice(self.at, self.at + BATCH)
        known = self.questions.policy[rows]
        prior[: len(known)], value[: len(known)] = known, self.questions.value[rows]
        self.at += BATCH


def test_who_knows_everything_is_left_with_the_targets_entropy(games):
    questions = questions_of(RULES, games, ALL)
    found = judge(Oracle(questions), questions)
    assert (found.policy_accuracy, found.value_error) == (1.0, 0.0)
    shape = shape_of(facts_of(games))
    assert (found.cross_entropy, found.entropy) == pytest.approx((shape.target_entropy,) * 2, rel=1e-5)


def test_questions_are_spread_evenly_over_the_targets(games, records):
    whole, some = questions_of(RULES, games, ALL), questions_of(RULES, games, 20)
    num = len(whole.value)
    assert num == sum(int(record.visit_counts.any(axis=1).sum()) for record in records)
    chosen = [k * num // 20 for k in range(20)]
    for name in ("planes", "policy", "value"):
        assert np.array_equal(getattr(some, name), getattr(whole, name)[chosen])
    joined = join_questions([some, some])
    assert len(joined.value) == 40 and np.array_equal(joined.planes[20:], some.planes)


def slow_entropy(record: GameRecord) -> list[float]:
    shares = [[c / sum(row) for c in row.tolist() if c] for row in record.visit_counts if row.any()]
    return [-sum(p * math.log(p) for p in row) for row in shares]


def test_games_are_counted_as_record_by_record(games, records):
    shape = shape_of(facts_of(games))
    lengths = [len(record.actions) for record in records]
    margins = [record.margin for record in records if record.end != "resignation"]
    assert (shape.num_games, shape.resigned) == pytest.approx((12, 1 / 12))
    assert (shape.mean_length, shape.length_spread) == pytest.approx((np.mean(lengths), np.std(lengths)))
    assert shape.score_spread == pytest.approx(np.std(margins))
    assert shape.black_score == pytest.approx(sum(record.outcome == 1 for record in records) / 12)
    assert shape.start_value == pytest.approx(np.mean([record.root_values[0] for record in records]))
    entropies = [entropy for record in records for entropy in slow_entropy(record)]
    assert (shape.num_targets, shape.target_entropy) == pytest.approx((len(entropies), np.mean(entropies)))
    first = Counter(int(record.actions[0]) for record in records)
    assert shape.first_moves == tuple(first[action] for action in range(RULES.num_actions))


def test_openings_are_unique_by_their_first_moves(records):
    one, other = records[0], records[1]
    forked = one._replace(actions=np.concatenate([one.actions[:6], other.actions[6:]]), game=99)
    played = [one, one, forked._replace(visit_counts=np.ones((len(forked.actions), 26), np.uint16))]
    played[2] = played[2]._replace(root_values=np.zeros(len(forked.actions)), best_values=np.zeros(len(forked.actions)))
    assert one.actions[6] != other.actions[6]
    shape = shape_of(facts_of(read_records(write_records(played), "made")))
    assert shape.unique_openings == {4: 1, 8: 2, 12: 2}


def test_shards_count_as_one_set_of_games(games, records):
    parts = [read_records(write_records(records[a:b]), "part") for a, b in ((0, 5), (5, 12))]
    assert shape_of(join(facts_of(part) for part in parts)) == shape_of(facts_of(games))

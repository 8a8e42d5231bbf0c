"""A network held against games that were played: does it expect the moves and the outcomes? No game is played."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, Rules, new_history, new_position
from zero.search.evaluator import Evaluator
from zero.storage.manifests import Manifest

BATCH = 256
"""Positions the network judges at a time; the last batch is filled up with empty boards, so that all have one shape."""
LEAST_PRIOR = 1e-8
"""What a prior of zero counts as, so that one move cannot make the cross-entropy infinite."""


class Questions(NamedTuple):
    """Positions out of games and what came of them, seen by the player to move."""

    planes: np.ndarray  # [N, P, W] uint64, see `zero.games.planes`
    policy: np.ndarray  # [N, A] float32, visits over their sum
    value: np.ndarray  # [N] float32, outcome


class Judgement(Manifest):
    """How well a network knows games."""

    num_positions: int
    policy_accuracy: float
    """Share of the positions whose most visited move has the highest prior."""
    cross_entropy: float
    """Mean over the positions of the prior against the policy target, nats; at best the targets' own entropy."""
    value_error: float
    """Mean squared difference of value and outcome; 1 for a network that always says 0 where nothing is drawn."""
    entropy: float
    """Mean entropy of the prior, nats."""


def questions_of(rules: Rules, games: GameColumns, num_positions: int) -> Questions:
    """Positions spread evenly over the policy targets of games, all of them where they are no more than asked for."""
    targets = np.flatnonzero(np.diff(games.visit_offsets))
    num = min(num_positions, len(targets))
    chosen = targets[np.arange(num) * len(targets) // max(num, 1)]
    questions = Questions(
        planes=np.zeros((num, NUM_PLANES, rules.num_words), np.uint64),
        policy=np.zeros((num, rules.num_actions), np.float32),
        value=np.zeros(num, np.float32),
    )
    position, history = new_position(rules), new_history(rules)
    game_of = np.searchsorted(games.move_offsets, chosen, side="right") - 1
    for row, (move, game) in enumerate(zip(chosen, game_of, strict=True)):
        first = games.move_offsets[game]
        write_sample(rules, position, history, games.actions[first:move], move - first, 0, questions.planes[row])
        edges = slice(games.visit_offsets[move], games.visit_offsets[move + 1])
        counts = games.visit_counts[edges].astype(np.float32)
        questions.policy[row, games.visit_actions[edges]] = counts / counts.sum()
        questions.value[row] = games.outcome[game] * (1 if (move - first) % 2 == 0 else -1)
    return questions


def join_questions(parts: Iterable[Questions]) -> Questions:
    """Several sets of questions as one."""
    return Questions(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def judge(evaluator: Evaluator, questions: Questions) -> Judgement:
    """Asks the network all questions, of which there is at least one."""
    num = len(questions.value)
    prior, value = answers(evaluator, questions.planes, questions.policy.shape[1])
    logs = np.log(np.maximum(prior, LEAST_PRIOR))
    return Judgement(
        num_positions=num,
        policy_accuracy=float((prior.argmax(axis=1) == questions.policy.argmax(axis=1)).mean()),
        cross_entropy=float(-(questions.policy * logs).sum(axis=1).mean()),
        value_error=float(((value - questions.value) ** 2).mean()),
        entropy=float(-(prior * logs).sum(axis=1).mean()),
    )


def answers(evaluator: Evaluator, planes: np.ndarray, num_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Priors [N, A] and values [N], float64, of N positions."""
    num = len(planes)
    prior, value = np.zeros((num, num_actions)), np.zeros(num)
    batch = np.zeros((BATCH, *planes.shape[1:]), planes.dtype)
    batch_prior, batch_value = np.zeros((BATCH, num_actions), np.float32), np.zeros(BATCH, np.float32)
    for start in range(0, num, BATCH):
        part = planes[start : start + BATCH]
        batch[: len(part)] = part
        batch[len(part) :] = 0
        evaluator.evaluate(batch, batch_prior, batch_value)
        prior[start : start + BATCH] = batch_prior[: len(part)]
        value[start : start + BATCH] = batch_value[: len(part)]
    return prior, value

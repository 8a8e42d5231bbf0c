"""Computes the yardsticks that are missing and have become computable, generation by generation."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from zero.config.params import PARAMS_FILE, GameParams, Params, ProfileParams, parse_params
from zero.evaluation.probes import AHEAD, GNUGO, OWN, later
from zero.evaluation.probes.data import games_digest, num_shards, shards_of
from zero.evaluation.probes.gnugo import gnugo_digest, gnugo_games
from zero.evaluation.probes.judge import Questions, join_questions, judge, questions_of
from zero.evaluation.probes.shape import facts_of, join, shape_of
from zero.evaluation.probes.table import (
    GenerationYardsticks,
    Who,
    Yardstick,
    keep_yardsticks,
    read_yardsticks,
    yardsticks_dir,
)
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.network.inference import new_evaluator
from zero.network.profile import local_profile, prepare_torch
from zero.players.networks import weights_of, weights_path
from zero.record.generation import Generation
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.record.lineages import ProjectRecord
from zero.search.evaluator import Evaluator
from zero.storage.vcs import git

POSITIONS = 2048
"""Of a set of games, spread evenly: an accuracy of one half has a standard error of 1.1 %."""
KEPT_QUESTIONS, KEPT_NETWORKS = 2 + max(AHEAD), 2
"""So many are in memory: a generation needs games up to the farthest ahead, and two networks."""

Progress = Callable[[int, int], None]
"""Called with (judgements done, judgements that were missing)."""


class Task(NamedTuple):
    """A yardstick that is missing and can be computed."""

    of: int
    """Generation whose network it is."""
    who: Who
    weights: str
    games: str
    played_in: int | None
    """Generation whose games they are; None: GNU Go's."""
    games_digest: str


def fill_in(home: Path, lineage: str, progress: Progress | None = None) -> list[GenerationYardsticks]:
    """Computes what is missing; all yardsticks that are there then, oldest first.

    A generation whose games or networks are not on this machine is left out.

    Raises:
      LineageError: there is no such lineage.
      StorageError: games are half there or altered, or the result cannot be kept.
    """
    folder = yardsticks_dir(home, lineage)
    with ProjectRecord(home) as chains:
        here = {each.number: each for each in chains.generations(lineage) if _is_here(each)}
        kept = {number: _begin(folder, generation) for number, generation in here.items()}
        tasks = [task for number in here for task in missing_tasks(number, here, kept[number])]
        bench = _Bench(here)
        for done, task in enumerate(tasks):
            if progress:
                progress(done, len(tasks))
            kept[task.of] = kept[task.of].with_yardstick(bench.measure(task))
            keep_yardsticks(folder, kept[task.of])
        if progress:
            progress(len(tasks), len(tasks))
    return [kept[number] for number in sorted(kept)]


def newest_rules(home: Path, lineage: str) -> Rules:
    """The rules of a lineage's newest recorded generation; what its workspace holds may be another one in the making.

    Raises:
      LineageError: there is no such lineage.
      ParamsError: its parameters cannot be read by this version of the program.
    """
    newest = read_ledger(find_workspace(home, lineage))[-1]
    name = f"{generation_tag(lineage, newest.generation)}:{PARAMS_FILE}"
    return rules_of(parse_params(git(home, "show", name), name).game)


def missing_tasks(number: int, here: Mapping[int, Generation], kept: GenerationYardsticks) -> Iterator[Task]:
    """What can be computed of generation `number` and is not kept, or is kept of other games or another network."""
    known = {(each.who, each.weights, each.games, each.games_digest) for each in kept.yardsticks}
    games: list[tuple[str, int | None, str]] = [(OWN, number, kept.games_digest)]
    for ahead in AHEAD:
        if number + ahead in here and (digest := games_digest(here[number + ahead])):
            games.append((later(ahead), number + ahead, digest))
    params = here[number].params
    if params is not None and (digest := gnugo_digest(rules_of(params.game))):
        games.append((GNUGO, None, digest))
    for who, weights in networks_of(here[number]).items():
        for name, played_in, digest in games:
            if (who, weights, name, digest) not in known:
                yield Task(number, who, weights, name, played_in, digest)


def networks_of(generation: Generation) -> dict[Who, str]:
    """The challenger and the champion after the decision, by SHA-256; of a promoted one there is the challenger."""
    entry = generation.entry
    if entry is None or entry.decision is None:
        return {}
    networks: dict[Who, str] = {"challenger": entry.decision.challenger}
    if entry.champion != entry.decision.challenger:
        networks["champion"] = entry.champion
    return {who: sha256 for who, sha256 in networks.items() if weights_path(generation, sha256)}


def judging_profile(profile: ProfileParams) -> ProfileParams:
    """How networks are asked here: in fp32 on the CPU, so that the numbers of different machines compare."""
    return local_profile(profile, profile.selfplay_threads, "cpu", "fp32")


class _Bench:
    """Networks and questions of these generations, each read once for all the tasks that need it."""

    def __init__(self, here: Mapping[int, Generation]) -> None:
        self._here = here
        self._evaluator = lru_cache(KEPT_NETWORKS)(self._read_network)
        self._questions = lru_cache(KEPT_QUESTIONS)(self._read_questions)
        self._gnugo = lru_cache(1)(_gnugo_questions)

    def measure(self, task: Task) -> Yardstick:
        evaluator = self._evaluator(task.of, task.weights)
        game = _params(self._here[task.of]).game
        questions = self._gnugo(game) if task.played_in is None else self._questions(task.played_in)
        return Yardstick(
            who=task.who,
            weights=task.weights,
            games=task.games,
            games_digest=task.games_digest,
            judgement=judge(evaluator, questions),
        )

    def _read_network(self, number: int, sha256: str) -> Evaluator:
        generation = self._here[number]
        data = weights_of(generation, sha256)
        assert data is not None
        profile = judging_profile(_params(generation).profile)
        prepare_torch(profile, profile.selfplay_threads)
        return new_evaluator(data, profile)

    def _read_questions(self, number: int) -> Questions:
        generation = self._here[number]
        rules = rules_of(_params(generation).game)
        num = num_shards(generation)
        shares = [POSITIONS * (k + 1) // num - POSITIONS * k // num for k in range(num)]
        shards = zip(shards_of(generation), shares, strict=True)
        return join_questions(questions_of(rules, games, share) for games, share in shards)


def _gnugo_questions(game: GameParams) -> Questions:
    rules = rules_of(game)
    games = gnugo_games(rules)
    assert games is not None
    return questions_of(rules, games, POSITIONS)


def _is_here(generation: Generation) -> bool:
    """True for a generation with a decision whose games are on this machine and whose parameters can be read."""
    entry = generation.entry
    decided = entry is not None and entry.decision is not None
    return decided and generation.params is not None and games_digest(generation) is not None


def _begin(folder: Path, generation: Generation) -> GenerationYardsticks:
    """What is kept of a generation, or its shape alone."""
    digest = games_digest(generation)
    assert digest is not None
    kept = read_yardsticks(folder, generation.number)
    entry = generation.entry
    is_promoted = not (entry and entry.decision and entry.champion != entry.decision.challenger)
    if kept is not None and (kept.lineage, kept.games_digest) == (generation.lineage, digest):
        return kept.model_copy(update={"is_promoted": is_promoted})
    made = GenerationYardsticks(
        lineage=generation.lineage,
        generation=generation.number,
        games_digest=digest,
        shape=shape_of(join(facts_of(games) for games in shards_of(generation))),
        is_promoted=is_promoted,
        yardsticks=(),
    )
    keep_yardsticks(folder, made)
    return made


def _params(generation: Generation) -> Params:
    assert generation.params is not None
    return generation.params

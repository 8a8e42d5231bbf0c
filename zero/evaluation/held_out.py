"""Held-out evaluation (`zero evaluate`): networks of a lineage on positions of games that exist anyway.

For each generation the challenger and the champion predict moves and outcomes of these sets of games:

| games | content |
|---|---|
| `own` | the generation's own self-play, on which the challenger was trained |
| `later-1`, `later-5` | self-play of one and five generations later, which the network cannot have seen |
| `gnugo` | games of GNU Go against itself, 9x9 Go only |
| `test` | the test split of the lineage's dataset (`zero import`), or of another one |

Results are stored in `<home>/.zero/evaluation/go9/gen-0012.json`. They are not part of the record: each one names its
network and its games by SHA-256 and can be computed again. This module also shows them, as tables and as a run in
MLflow.

`gnugo9.sgf` contains games of GNU Go 3.8 at level 10 on 9x9. Each pair of games starts with random moves, because
GNU Go would otherwise repeat a few games. It is the `games.sgf` of

    zero match gnugo:10 gnugo:10 --games 40 --openings 4 --size 9 --komi 7 --out games
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
from pydantic import ValidationError
from rich.table import Table

from zero.config.params import GameParams, Params, ProfileParams
from zero.config.settings import STATE_FOLDER
from zero.data.dataset.columns import columns_of
from zero.data.dataset.game import GameReader
from zero.data.dataset.manifest import Dataset, ImportedGame, RawGame
from zero.data.dataset.options import ANY, parse_options
from zero.data.dataset.reader import files_of, read_part
from zero.data.dataset.result import SCORE
from zero.data.dataset.sources import Found, games_of_file
from zero.data.records import GameColumns, read_records
from zero.errors import ParamsError
from zero.games.planes import write_sample
from zero.games.position import GO, NUM_PLANES, Rules, new_history, new_position
from zero.games.rules import rules_of
from zero.network.inference import new_evaluator
from zero.network.profile import local_profile, prepare_inference
from zero.players.networks import weights_of, weights_path
from zero.progress import Progress
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord
from zero.search.evaluator import Evaluator
from zero.storage.files import canonical_json, read_manifest, sha256_bytes, sha256_file, write_atomic
from zero.storage.layout import GAMES_DIR
from zero.storage.manifests import MANIFEST_FILE, GameSet, Manifest, Sha256
from zero.tracking.backfill import track_summary
from zero.tracking.pages import MetricPoint

AHEAD = (1, 5)
"""Distances, in generations, of the later games."""
OWN, GNUGO = "own", "gnugo"
TEST: Final = "test"
GAME_SETS = (OWN, *(f"later-{ahead}" for ahead in AHEAD), GNUGO, TEST)
NUM_POSITIONS, NUM_TEST_POSITIONS = 2048, 8192
"""Positions per set of games. The standard error of an accuracy of one half would be 1.1 %, for the test split 0.6 %,
if the positions of a game were independent. Clustered by game it was 1.2 times as large on GNU Go's games, and that of
a value error 3.3 times."""
BATCH = 256
"""Positions per call of the network. The last batch is padded, so that every call has the same shape."""
MIN_PRIOR = 1e-8
"""Lower bound of a prior in the cross-entropy, which would be infinite at zero."""
CACHED_POSITIONS = 1 + max(AHEAD)
"""Sets of positions in memory: generation n needs the games from n to n + 5."""
GNUGO_FILE = Path(__file__).with_name("gnugo9.sgf")
GNUGO_BOARD = 9
GNUGO_OPENING_MOVES = 4
"""Random moves at the start of each game; they are not policy targets."""

STAGE = "evaluation"
"""Name of the run in MLflow."""
NOTE = "Held-out evaluation (`zero evaluate`): the step is the generation; `later-1` are the games of the next one."
MAX_ROWS = 20
"""Generations in a table, the newest ones."""
MISSING = "·"

Network = Literal["challenger", "champion"]
NETWORKS: tuple[Network, ...] = ("challenger", "champion")

log = logging.getLogger(__name__)


class Metrics(Manifest):
    """How well a network predicts a set of games."""

    num_positions: int
    policy_accuracy: float
    """Share of the positions in which the most visited move has the highest prior."""
    cross_entropy: float
    """Mean cross-entropy of the prior with the policy target, nats. Its minimum is the entropy of the targets."""
    value_error: float
    """Mean squared difference of value and outcome; 1 for a network that always predicts 0, if there are no draws."""
    entropy: float
    """Mean entropy of the prior, nats."""


class Evaluation(Manifest):
    """One network on one set of games."""

    network: Network
    weights: Sha256
    games: str
    """One of `GAME_SETS`."""
    games_digest: Sha256
    """SHA-256 of the manifest of the games, or of the SGF file."""
    metrics: Metrics


class GenerationEvaluation(Manifest):
    """All results of one generation that could be computed so far."""

    version: Literal[3, 4] = 4
    lineage: str
    generation: int
    game: GameParams
    games_digest: Sha256
    """SHA-256 of the manifest of the generation's own games."""
    is_promoted: bool
    """True if the champion after the generation is its challenger; its results are then stored once, as challenger."""
    evaluations: tuple[Evaluation, ...]

    def find(self, network: Network, games: str) -> Metrics | None:
        """The metrics of a network on a set of games; None if they are not computed."""
        if self.is_promoted:
            network = "challenger"
        wanted = (network, games)
        return next((each.metrics for each in self.evaluations if (each.network, each.games) == wanted), None)

    def with_test_games(self, digest: str) -> "GenerationEvaluation":
        """A copy without the results on test splits that have another digest."""
        kept = tuple(each for each in self.evaluations if each.games != TEST or each.games_digest == digest)
        return self.model_copy(update={"evaluations": kept})

    def with_evaluation(self, evaluation: Evaluation) -> "GenerationEvaluation":
        """A copy with one more result, which replaces an older one of the same network and set of games."""
        key = (evaluation.network, evaluation.games)
        others = [each for each in self.evaluations if (each.network, each.games) != key]
        ordered = sorted([*others, evaluation], key=lambda each: (each.network, each.games))
        return self.model_copy(update={"evaluations": tuple(ordered)})


class Positions(NamedTuple):
    """Positions of games with the targets of a network, for the player to move."""

    planes: np.ndarray  # [N, P, W] uint64, see `zero.games.planes`
    policy: np.ndarray  # [N, A] float32, visits divided by their sum
    value: np.ndarray  # [N] float32, outcome


class Played(NamedTuple):
    """A generation with a decision whose parameters and games are on this machine."""

    generation: Generation
    params: Params
    games: GameSet
    games_digest: str
    """SHA-256 of the manifest of its games."""
    networks: dict[Network, str]
    """SHA-256 of the weights; without the champion if it is the challenger."""


class TestGames(NamedTuple):
    """A dataset whose test split is a set of games."""

    folder: Path
    digest: str
    """SHA-256 of its manifest."""


class Request(NamedTuple):
    """A result that is missing and can be computed."""

    generation: int
    network: Network
    weights: str
    games: str
    played_in: int | None
    """Generation of the games; None for GNU Go's and for the test split."""
    games_digest: str


def backfill(
    home: Path, lineage: str, progress: Progress | None = None, dataset: Path | None = None
) -> list[GenerationEvaluation]:
    """Computes and stores the missing results of a lineage; returns all results, oldest generation first.

    Generations whose games or networks are not on this machine are skipped. Stored results of another dataset are not
    returned, nor those of a dataset that is not on this machine.

    Args:
      home: the project's folder.
      lineage: its name.
      progress: see `Progress`.
      dataset: folder of the dataset whose test split is evaluated; by default that of the lineage's parameters.

    Raises:
      LineageError: the lineage does not exist.
      ParamsError: the dataset is of another game.
      StorageError: a shard or a network is missing or corrupt, or a result cannot be written.
    """
    folder = evaluation_dir(home, lineage)
    with ProjectRecord(home) as record:
        available = {each.number: played for each in record.generations(lineage) if (played := played_of(each))}
        results = {number: _load_or_start(folder, played) for number, played in available.items()}
        test = _test_games(home, [*available.values()], dataset)
        requests = [each for number in available for each in missing_requests(number, available, results[number], test)]

        @lru_cache(1)  # the requests of a network follow one another
        def network(number: int, sha256: str) -> Evaluator:
            return _load_network(available[number], sha256)

        @lru_cache(CACHED_POSITIONS)
        def positions(number: int) -> Positions:
            return _self_play_positions(available[number])

        @lru_cache(2)  # GNU Go's games and the test split
        def foreign(games: str, game: GameParams) -> Positions:
            if games == GNUGO:
                return gnugo_positions(game)
            assert test is not None
            return test_positions(test.folder, game)

        for done, request in enumerate(requests):
            if progress:
                progress(done, len(requests))
            result = results[request.generation]
            played_in = request.played_in
            games = foreign(request.games, result.game) if played_in is None else positions(played_in)
            evaluation = Evaluation(
                network=request.network,
                weights=request.weights,
                games=request.games,
                games_digest=request.games_digest,
                metrics=evaluate(network(request.generation, request.weights), games),
            )
            results[request.generation] = result.with_evaluation(evaluation)
            _write_evaluation(folder, results[request.generation])
        if progress:
            progress(len(requests), len(requests))
    digest = test.digest if test else ""
    return [results[number].with_test_games(digest) for number in sorted(results)]


def missing_requests(
    number: int, available: Mapping[int, Played], result: GenerationEvaluation, test: TestGames | None = None
) -> Iterator[Request]:
    """The results of generation `number` that can be computed and are missing or belong to other games or weights."""
    known = {(each.network, each.weights, each.games, each.games_digest) for each in result.evaluations}
    games: list[tuple[str, int | None, str]] = []
    for name, ahead in ((OWN, 0), *((f"later-{ahead}", ahead) for ahead in AHEAD)):
        later = available.get(number + ahead)
        if later is not None and later.games.num_games:  # a generation may have no self-play
            games.append((name, number + ahead, later.games_digest))
    if has_gnugo_games(rules_of(result.game)):
        games.append((GNUGO, None, sha256_bytes(GNUGO_FILE.read_bytes())))
    if test is not None:
        games.append((TEST, None, test.digest))
    for network, weights in available[number].networks.items():
        if weights_path(available[number].generation, weights) is None:  # not on this machine
            continue
        for name, played_in, digest in games:
            if (network, weights, name, digest) not in known:
                yield Request(number, network, weights, name, played_in, digest)


def evaluation_profile(profile: ProfileParams) -> ProfileParams:
    """The profile that networks are evaluated with: fp32 on the CPU, so that results of different machines compare."""
    return local_profile(profile, profile.selfplay_threads, "cpu", "fp32")


def evaluate(evaluator: Evaluator, positions: Positions) -> Metrics:
    """The metrics of a network on at least one position."""
    prior, value = _predict(evaluator, positions.planes, positions.policy.shape[1])
    log_prior = np.log(np.maximum(prior, MIN_PRIOR))
    return Metrics(
        num_positions=len(value),
        policy_accuracy=float((prior.argmax(axis=1) == positions.policy.argmax(axis=1)).mean()),
        cross_entropy=float(-(positions.policy * log_prior).sum(axis=1).mean()),
        value_error=float(((value - positions.value) ** 2).mean()),
        entropy=float(-(prior * log_prior).sum(axis=1).mean()),
    )


def sample_positions(rules: Rules, games: GameColumns, num_positions: int) -> Positions:
    """Positions of games, spread evenly over their policy targets; all of them if there are not more."""
    targets = np.flatnonzero(np.diff(games.visit_offsets))
    num = min(num_positions, len(targets))
    moves = targets[np.arange(num) * len(targets) // max(num, 1)]
    positions = Positions(
        planes=np.zeros((num, NUM_PLANES, rules.num_words), np.uint64),
        policy=np.zeros((num, rules.num_actions), np.float32),
        value=np.zeros(num, np.float32),
    )
    position, history = new_position(rules), new_history(rules)
    game_of = np.searchsorted(games.move_offsets, moves, side="right") - 1
    for row, (move, game) in enumerate(zip(moves, game_of, strict=True)):
        first, edges = games.move_offsets[game], slice(games.visit_offsets[move], games.visit_offsets[move + 1])
        write_sample(rules, position, history, games.actions[first:move], move - first, 0, positions.planes[row])
        counts = games.visit_counts[edges].astype(np.float32)
        positions.policy[row, games.visit_actions[edges]] = counts / counts.sum()
        positions.value[row] = games.outcome[game] * (1 if (move - first) % 2 == 0 else -1)
    return positions


def has_gnugo_games(rules: Rules) -> bool:
    """True if `gnugo9.sgf` is of this game and board."""
    return rules.game == GO and (rules.rows, rules.columns) == (GNUGO_BOARD, GNUGO_BOARD)


def gnugo_positions(game: GameParams) -> Positions:
    """Positions of GNU Go's games, spread evenly; the move that was played is the policy target.

    Left out are repeated games, games without an outcome, and the random opening moves.

    Args:
      game: 9x9 Go, as in the file; the komi may differ.
    """
    rules = rules_of(game)
    return sample_positions(rules, columns_of(rules, gnugo_games(game), 0, GNUGO_OPENING_MOVES), NUM_POSITIONS)


def gnugo_games(game: GameParams) -> list[ImportedGame]:
    """The different games of GNU Go that have a result, read as `zero import` reads games."""
    options = parse_options(game, ANY, None, GNUGO_OPENING_MOVES + 1, "1,0,0", seed=0)
    reader = GameReader(rules_of(game), options)
    items = games_of_file(Found(GNUGO_FILE, GNUGO_FILE.name, 0), lambda _: None)
    read = [reader.read(item) for item in items if isinstance(item, RawGame)]
    unique = {tuple(each.actions): each for each in read if isinstance(each, ImportedGame)}
    return [_with_komi(each, rules_of(game).komi) for each in unique.values()]


def test_positions(folder: Path, game: GameParams) -> Positions:
    """Positions of a dataset's test split, spread evenly; the move that was played is the policy target.

    Raises:
      ParamsError: it is of another game.
      StorageError: it is corrupt, or has no games for the test.
    """
    dataset, rules = read_manifest(folder, Dataset), rules_of(game)
    if dataset.game != game:
        raise ParamsError(f"{folder} has games of {dataset.game}, but the lineage plays {game}; name another dataset")
    files = files_of(folder, dataset, TEST)
    shares = _shares(NUM_TEST_POSITIONS, [file.num_positions for file in files])
    return _joined(
        sample_positions(rules, read_part(folder, dataset, file), share)
        for file, share in zip(files, shares, strict=True)
    )


def evaluation_dir(home: Path, lineage: str) -> Path:
    """Folder of a lineage's results."""
    return home / STATE_FOLDER / "evaluation" / lineage


def read_evaluation(folder: Path, generation: int) -> GenerationEvaluation | None:
    """The stored results of a generation; None if there are none that this version can read."""
    path = _path(folder, generation)
    try:
        result = GenerationEvaluation.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        log.warning("%s cannot be read; its results are computed again", path)
        return None
    if result.version == 3:  # it had other positions of the test split
        result = result.with_test_games("").model_copy(update={"version": 4})
    return result


def evaluation_table(results: Sequence[GenerationEvaluation]) -> Table:
    """A table of the networks of the newest generations."""
    title = "networks on held-out games: policy accuracy / cross-entropy / squared value error"
    networks = Table(title=title, title_justify="left")
    shown = results[-MAX_ROWS:]
    sets = [games for games in GAME_SETS if any(each.find(name, games) for each in shown for name in NETWORKS)]
    networks.add_column("generation", justify="right", no_wrap=True)
    networks.add_column("network", no_wrap=True)
    for games in (*sets, "entropy"):
        networks.add_column(games, justify="right", no_wrap=True)
    for each in shown:
        for network in NETWORKS[:1] if each.is_promoted else NETWORKS:
            found = [each.find(network, games) for games in sets]
            first = next((metrics for metrics in found if metrics is not None), None)
            entropy = MISSING if first is None else f"{first.entropy:.2f}"
            networks.add_row(str(each.generation), network, *map(_cell, found), entropy)
    return networks


def track_evaluation(uri: str, lineage: str, results: Sequence[GenerationEvaluation]) -> str:
    """Writes the results to MLflow in place of the older ones; returns the address of the run.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    points = [point for each in results for point in evaluation_points(each)]
    content = {f"gen-{each.generation:04d}": each.model_dump(mode="json") for each in results}
    return track_summary(uri, lineage, STAGE, NOTE, points, {"evaluation.json": canonical_json(content)})


def evaluation_points(result: GenerationEvaluation) -> list[MetricPoint]:
    """Metrics of one generation, such as `challenger/later-1/policy_accuracy`."""
    numbers: dict[str, float] = {}
    for network in NETWORKS:
        for games in GAME_SETS:
            if (metrics := result.find(network, games)) is not None:
                values = metrics.model_dump(exclude={"num_positions"})
                numbers |= {f"{network}/{games}/{name}": value for name, value in values.items()}
    return [MetricPoint(name, float(value), result.generation) for name, value in numbers.items()]


def _write_evaluation(folder: Path, result: GenerationEvaluation) -> None:
    write_atomic(_path(folder, result.generation), canonical_json(result))


def _path(folder: Path, generation: int) -> Path:
    return folder / f"gen-{generation:04d}.json"


def played_of(generation: Generation) -> Played | None:
    """What the evaluation of a generation needs; None if it has no decision, or a part is not on this machine."""
    entry, params, games = generation.entry, generation.params, generation.games
    manifest = generation.manifest_bytes(GAMES_DIR)
    if entry is None or entry.decision is None or params is None or games is None or manifest is None:
        return None
    networks: dict[Network, str] = {"challenger": entry.decision.challenger}
    if entry.champion != entry.decision.challenger:
        networks["champion"] = entry.champion
    return Played(generation, params, games, sha256_bytes(manifest), networks)


def _load_or_start(folder: Path, played: Played) -> GenerationEvaluation:
    """The stored results of a generation, without those of networks that it does not have; or new ones."""
    generation, is_promoted = played.generation, "champion" not in played.networks
    result = read_evaluation(folder, generation.number)
    if result is not None and (result.lineage, result.games_digest) == (generation.lineage, played.games_digest):
        # An earlier lineage of this name may have had the same games, but another training and another decision.
        own = tuple(each for each in result.evaluations if played.networks.get(each.network) == each.weights)
        return result.model_copy(update={"is_promoted": is_promoted, "evaluations": own})
    result = GenerationEvaluation(
        lineage=generation.lineage,
        generation=generation.number,
        game=played.params.game,
        games_digest=played.games_digest,
        is_promoted=is_promoted,
        evaluations=(),
    )
    _write_evaluation(folder, result)
    return result


def _load_network(played: Played, sha256: str) -> Evaluator:
    data = weights_of(played.generation, sha256)
    assert data is not None, "see missing_requests"
    profile = evaluation_profile(played.params.profile)
    prepare_inference(profile)
    return new_evaluator(data, profile)


def _self_play_positions(played: Played) -> Positions:
    """Positions of a generation's self-play, as many from each shard."""
    rules, shares = rules_of(played.params.game), _shares(NUM_POSITIONS, [1] * len(played.games.shards))
    shards = zip(shards_of(played), shares, strict=True)
    return _joined(sample_positions(rules, games, share) for games, share in shards)


def _shares(total: int, sizes: Sequence[int]) -> list[int]:
    """A total divided into whole parts in proportion to `sizes`."""
    edges = [total * done // sum(sizes) for done in accumulate(sizes, initial=0)]
    return [end - start for start, end in pairwise(edges)]


def _joined(parts: Iterable[Positions]) -> Positions:
    return Positions(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _test_games(home: Path, available: Sequence[Played], dataset: Path | None) -> TestGames | None:
    """The dataset with the test games: the given one, or that of the newest parameters.

    None if there is none, or the one of the parameters is not on this machine or has no test games.
    """
    named = available[-1].params.dataset if available else ""
    folder = dataset or (home / named if named else None)
    if folder is None:
        return None
    if dataset is None and not (folder / MANIFEST_FILE).exists():
        log.warning("%s is not here, so its test games are left out; get it with `dvc pull %s.dvc`", folder, named)
        return None
    if dataset is None and all(file.split != TEST for file in read_manifest(folder, Dataset).files):
        log.info("%s was imported without test games, so there are no results on them", folder)
        return None
    return TestGames(folder, sha256_file(folder / MANIFEST_FILE))


def shards_of(played: Played) -> Iterator[GameColumns]:
    """The shards of a generation's self-play from DVC's cache; only one is in memory at a time.

    Raises:
      StorageError: a shard is missing or corrupt.
    """
    generation = played.generation
    for shard in played.games.shards:
        data = generation.checked_data(GAMES_DIR, shard.file.path, shard.file.sha256)
        yield read_records(data, f"{GAMES_DIR}/{shard.file.path} of {generation.tag}")


def _with_komi(game: ImportedGame, komi: float) -> ImportedGame:
    """The game with its outcome by another komi, which does not change a resignation."""
    if game.end != SCORE:
        return game
    return game._replace(outcome=int(np.sign(game.margin + (game.komi or 0.0) - komi)))


def _predict(evaluator: Evaluator, planes: np.ndarray, num_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Priors [N, A] and values [N], both float64, of positions [N, P, W]."""
    num = len(planes)
    padded = np.concatenate([planes, np.zeros((-num % BATCH, *planes.shape[1:]), planes.dtype)])
    prior, value = np.zeros((len(padded), num_actions), np.float32), np.zeros(len(padded), np.float32)
    for start in range(0, len(padded), BATCH):
        rows = slice(start, start + BATCH)
        evaluator.evaluate(padded[rows], prior[rows], value[rows])
    return prior[:num].astype(np.float64), value[:num].astype(np.float64)


def _cell(metrics: Metrics | None) -> str:
    if metrics is None:
        return MISSING
    return f"{metrics.policy_accuracy:.1%} / {metrics.cross_entropy:.2f} / {metrics.value_error:.2f}"

"""Games without a search: random moves with random visit counts, and a workspace for them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import yaml

from tests.parameters import network_params, preset, training_params, with_sections
from zero.config.params import GoParams, Params
from zero.data.records import GameColumns, game_record, read_records, write_records
from zero.games.go import write_ownership
from zero.games.position import ENDED, GO, Rules, new_history, new_position
from zero.games.rules import legal_mask, margin, outcome, play, rules_of
from zero.network.learner import Learner
from zero.network.weights import load_network, new_network, weights_bytes
from zero.play.slots import END_NAMES
from zero.storage.files import checked_path, file_ref, read_manifest, sha256_bytes, write_atomic, write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import Checkpoint, FileRef, GameRecord, GameSet, GenerationId, Origin, ShardRef, Window

LINEAGE = "made"
ANY_SHA256 = sha256_bytes(b"any")
GO5 = GoParams(name="go", size=5, komi=0.5, allow_suicide=False)
GAMES_PER_SHARD = 3
CHAMPION = sha256_bytes(b"champion")
"""Weights of the player of the games."""
MADE_SIMULATIONS = 48
"""Visits of each move; those of `go9-paper`."""


def made_params(**training: object) -> Params:
    """Small parameters on a 5x5 board; `training` changes that section."""
    small = {"num_steps": 10, "batch_size": 8, "ema_decay": 0.0, "checkpoint_interval": 4, "log_interval": 3}
    return with_sections(
        preset(),
        game=GO5,
        network=network_params(),
        replay={"window_games": 100},
        training=training_params(**small | training),
        profile={"training_threads": 1},
    )


def made_record(rules: Rules, draws: np.random.Generator, game: int) -> GameRecord:
    """A complete game of random legal moves that fulfils the data contract for `made_params`."""
    position, history = new_position(rules), new_history(rules)
    mask = np.zeros(rules.num_actions, np.bool_)
    actions, visits = [], []
    while not position.state[ENDED]:
        num_legal = legal_mask(rules, position, history, mask)
        counts = np.zeros(rules.num_actions, np.uint16)
        counts[mask] = draws.multinomial(MADE_SIMULATIONS, draws.dirichlet(np.full(num_legal, 0.3)))
        actions.append(int(counts.argmax()))
        visits.append(counts)
        play(rules, position, history, actions[-1])
    result = int(outcome(rules, position))
    best_values = draws.uniform(-1, 1, len(actions)).astype(np.float32)
    best_values[-1] = result if len(actions) % 2 else -result
    share = np.array([counts.max() / MADE_SIMULATIONS for counts in visits], np.float32)
    owners = np.zeros(rules.num_points if rules.game == GO else 0, np.int8)
    if rules.game == GO:
        write_ownership(rules, position, owners)
    return GameRecord(
        actions=np.array(actions, np.int16),
        visit_counts=np.array(visits),
        root_values=best_values * share,
        best_values=best_values,
        sample_weights=np.ones(len(actions), np.float32),
        ownership=owners,
        outcome=result,
        margin=float(margin(rules, position)),
        end=END_NAMES[position.state[ENDED]],
        never_resigns=True,
        game=game,
        black=CHAMPION,
        white=CHAMPION,
    )


def plain_record(actions: Sequence[int], num_actions: int = 10, **fields: object) -> GameRecord:
    """A game of some moves without a search, for code that does not replay it; `fields` change the rest."""
    moves = len(actions)
    values: dict[str, object] = {
        "actions": np.array(actions, np.int16),
        "visit_counts": np.ones((moves, num_actions), np.uint16),
        "root_values": np.zeros(moves, np.float32),
        "best_values": np.zeros(moves, np.float32),
        "sample_weights": np.ones(moves, np.float32),
        "ownership": np.zeros(0, np.int8),
        "outcome": 1,
        "margin": 0.5,
        "end": "passes",
        "never_resigns": False,
        "game": 0,
        "black": CHAMPION,
        "white": CHAMPION,
    }
    return GameRecord(**(values | fields))  # type: ignore[arg-type]


def made_records(rules: Rules, num_games: int, seed: int = 0, first_game: int = 0) -> list[GameRecord]:
    draws = np.random.default_rng(seed)
    return [made_record(rules, draws, first_game + i) for i in range(num_games)]


def records_of(games: GameColumns) -> list[GameRecord]:
    return [game_record(games, index) for index in range(games.num_games)]


def made_origin(stage: str, generation: int, lineage: str = LINEAGE) -> Origin:
    return Origin(
        stage=stage,
        lineage=lineage,
        generation=generation,
        seed=1,
        params_digest=ANY_SHA256,
        engine=ANY_SHA256,
        inputs={},
    )


def made_game_set(origin: Origin, shards: Sequence[list[GameRecord]]) -> tuple[GameSet, dict[str, bytes]]:
    """The manifest of these games and the content of its files by name."""
    files = {f"shard-{index:04d}.parquet": write_records(records) for index, records in enumerate(shards)}
    refs = [
        ShardRef(
            file=made_file_ref(name, files[name]),
            key=ANY_SHA256,
            generation=origin.generation,
            first_game=records[0].game,
            num_games=len(records),
            num_positions=sum(len(each.actions) for each in records),
        )
        for name, records in zip(files, shards, strict=True)
    ]
    num_games, num_positions = (sum(getattr(ref, name) for ref in refs) for name in ("num_games", "num_positions"))
    return GameSet(origin=origin, shards=tuple(refs), num_games=num_games, num_positions=num_positions), files


def made_file_ref(name: str, content: bytes) -> FileRef:
    return FileRef(path=name, sha256=sha256_bytes(content), num_bytes=len(content))


def write_games(folder: Path, generation: int, num_shards: int = 2) -> list[GameRecord]:
    """Writes `data/games` of a generation; returns its games."""
    rules = rules_of(GO5)
    directory = folder / "data/games"
    shards = [
        made_records(rules, GAMES_PER_SHARD, seed=10 * generation + shard, first_game=shard * GAMES_PER_SHARD)
        for shard in range(num_shards)
    ]
    origin = made_origin("selfplay", generation).model_copy(update={"inputs": {"champion": CHAMPION}})
    game_set, files = made_game_set(origin, shards)
    for name, data in files.items():
        write_atomic(directory / name, data)
    write_manifest(directory, game_set)
    write_manifest(folder, GenerationId(lineage=LINEAGE, number=generation, resign_threshold=-1.0), GENERATION_FILE)
    return [game for shard in shards for game in shard]


def replace_shard(directory: Path, index: int, change: Callable[[list[GameRecord]], list[GameRecord]]) -> bytes:
    """Writes other games into a shard, updates the manifest, and returns the new bytes."""
    games = read_manifest(directory, GameSet)
    refs, ref = list(games.shards), games.shards[index]
    records = change(records_of(read_records(checked_path(ref.file, directory).read_bytes(), "shard")))
    data, positions = write_records(records), sum(len(record.actions) for record in records)
    write_atomic(directory / ref.file.path, data)
    refs[index] = ref.model_copy(update={"file": made_file_ref(ref.file.path, data), "num_positions": positions})
    total = sum(each.num_positions for each in refs)
    write_manifest(directory, games.model_copy(update={"shards": tuple(refs), "num_positions": total}))
    return data


def write_params(folder: Path, params: Params) -> None:
    write_atomic(folder / "params.yaml", yaml.safe_dump(params.model_dump(mode="json")).encode())


def write_workspace(folder: Path, params: Params, num_shards: int = 2) -> list[GameRecord]:
    """A lineage's workspace in generation 1 after self-play; returns its games."""
    write_params(folder, params)
    empty = Window(origin=made_origin("replay", 0), shards=(), num_games=0, num_positions=0)
    write_manifest(folder / "state/replay", empty)
    directory = folder / "state/trainee"
    learner = Learner(new_network(params.network, params.game, params.seed), params.training, "cpu")
    write_atomic(directory / "weights.safetensors", learner.weights())
    write_atomic(directory / "optimizer.safetensors", learner.optimizer_state())
    trainee = Checkpoint(
        origin=made_origin("training", 0),
        network=params.network,
        step=0,
        learning_rate_factor=1.0,
        weights=file_ref(directory / "weights.safetensors", directory),
        optimizer=file_ref(directory / "optimizer.safetensors", directory),
    )
    write_manifest(directory, trainee)
    return write_games(folder, 1, num_shards)


def saturate_value_head(folder: Path) -> None:
    """Makes the value of the trainee 1 in all positions, so that its value head gets no gradient."""
    directory = folder / "state/trainee"
    checkpoint = Checkpoint.model_validate_json((directory / "manifest.json").read_bytes())
    assert checkpoint.raw_weights is None
    path = directory / checkpoint.weights.path
    model = load_network(path.read_bytes())
    with torch.no_grad():
        model.value_head.output.weight.zero_()
        model.value_head.output.bias.fill_(20.0)
    write_atomic(path, weights_bytes(model))
    write_manifest(directory, checkpoint.model_copy(update={"weights": file_ref(path, directory)}))

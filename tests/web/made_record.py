"""A lineage in git and DVC's cache with games of random moves and untrained networks, made in about a second."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.end_to_end.project import git
from tests.evaluation.scripted import Scripted, plays
from tests.made_games import made_file_ref, made_game_set, made_origin, made_records
from tests.made_generations import cache_path, commit_stream, made_decision, made_entry, put_folder
from tests.parameters import smoke_text
from zero.config.params import parse_params
from zero.data.records import concatenate, read_records, write_records
from zero.evaluation.match import MatchSpec, play_match
from zero.games.rules import rules_of
from zero.network.weights import new_network, weights_bytes
from zero.players.player import Reply
from zero.record.metrics import SelfplayMetrics
from zero.stages.resignation import calibrate
from zero.storage.files import canonical_json, canonical_line, sha256_bytes
from zero.storage.manifests import Champion, GameRecord, LedgerEntry

PARAMS = parse_params(smoke_text())
RULES = rules_of(PARAMS.game)
WEIGHTS = "weights.safetensors"


def network(number: int) -> bytes:
    """Weights of the network that a generation trained."""
    return weights_bytes(new_network(PARAMS.network, PARAMS.game, number))


def games(num_games: int, seed: int, first_game: int = 0, **fields: Any) -> list[GameRecord]:
    """Calibration games of random moves; `fields` change the rest."""
    return [each._replace(**fields) for each in made_records(RULES, num_games, seed, first_game)]


class MadeLineage:
    """The lineage `made` of a project: every challenger is refused, so generation 0 plays all games."""

    def __init__(self, home: Path) -> None:
        self.home, self.name = home, "made"
        self.ledger = b""
        self.champion = network(0)
        subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(home)], check=True)
        self._record(0, self._entry(0, None), {})

    def add(
        self, selfplay: Sequence[list[GameRecord]], match: list[GameRecord], threshold: float = -0.5
    ) -> list[GameRecord]:
        """Records the next generation with shards of self-play and one shard of the match; returns all games.

        Players are set: the champion, and in the match the challenger with Black in games of even number.
        """
        number = self.ledger.count(b"\n")
        champion, challenger = sha256_bytes(self.champion), sha256_bytes(network(number))
        shards = [[each._replace(black=champion, white=champion) for each in shard] for shard in selfplay]
        colours = [(challenger, champion), (champion, challenger)]
        match = [each._replace(black=colours[each.game % 2][0], white=colours[each.game % 2][1]) for each in match]
        outs = {
            "data/games": self._put_games("selfplay", number, shards),
            "data/match": self._put_games("gating", number, [match]),
        }
        lock = {"stages": {"all": {"outs": [{"path": path, "md5": digest} for path, digest in outs.items()]}}}
        files = {
            "dvc.lock": yaml.safe_dump(lock).encode(),
            "metrics/selfplay.json": canonical_json(self._metrics(shards, threshold)),
        }
        self._record(number, self._entry(number, challenger), files)
        return [each for shard in shards for each in shard] + match

    def tag(self, number: int) -> str:
        return f"{self.name}/gen-{number:04d}"

    def cached(self, number: int, folder: str, name: str = "") -> Path:
        """Path in DVC's cache of a file of a generation, or of the list of its folder."""
        lock = yaml.safe_load(git(self.home, "show", f"{self.tag(number)}:dvc.lock"))
        digest = next(out["md5"] for out in lock["stages"]["all"]["outs"] if out["path"] == folder)
        if name:
            listing = json.loads(cache_path(self.home, digest).read_bytes())
            digest = next(each["md5"] for each in listing if each["relpath"] == name)
        return cache_path(self.home, digest)

    def _put_games(self, stage: str, number: int, shards: Sequence[list[GameRecord]]) -> str:
        return put_folder(self.home, *made_game_set(made_origin(stage, number, self.name), shards))

    def _metrics(self, shards: Sequence[list[GameRecord]], threshold: float) -> SelfplayMetrics:
        """Metrics of self-play, of which only the resignation is that of the games."""
        columns = concatenate(read_records(write_records(shard), "made") for shard in shards)
        return SelfplayMetrics(
            num_games=columns.num_games,
            num_positions=columns.num_positions,
            unique_games=0,
            mean_length=0.0,
            black_wins=0,
            white_wins=0,
            draws=0,
            ended={},
            mean_abs_margin=0.0,
            root_value_error=0.0,
            target_positions=0,
            resignation=calibrate(columns, threshold, 0.05),
        )

    def _entry(self, number: int, challenger: str | None) -> LedgerEntry:
        champion = sha256_bytes(self.champion)
        decision = challenger and made_decision(self.name, number, False, 2, 4, challenger, champion)
        return made_entry(
            number,
            lineage=self.name,
            kind="decision" if challenger else "start",
            decision=decision or None,
            champion=champion,
            champion_generation=0,
            trainee=challenger or champion,
        )

    def _record(self, number: int, entry: LedgerEntry, files: Mapping[str, bytes]) -> None:
        """Commits the files of a generation, and tags the commit."""
        self.ledger += canonical_line(entry)
        weights = made_file_ref(WEIGHTS, self.champion)
        champion = Champion(generation=0, network=PARAMS.network, weights=weights)
        outs = [{"path": "champion", "hash": "md5", "md5": put_folder(self.home, champion, {WEIGHTS: self.champion})}]
        content = {
            "params.yaml": smoke_text().encode(),
            "record/ledger.jsonl": self.ledger,
            "state/champion.dvc": yaml.safe_dump({"outs": outs}).encode(),
            **files,
        }
        parent = f"refs/heads/lineage/{self.name}" if number else ""
        stream = commit_stream(self.name, number, content, number, parent)
        subprocess.run(["git", "-C", str(self.home), "fast-import", "--quiet", "--force"], input=stream, check=True)


def add_match(home: Path, name: str) -> None:
    """Plays a match of four games: one player takes the centre and passes, the other passes, but fails in game 3."""

    def passes(game: int, moves: tuple[int, ...]) -> Reply:
        return Reply(RULES.num_points, fault="" if game < 3 else "no answer")

    players = [Scripted("centre", plays(12, RULES.num_points)), Scripted("pass", passes)]
    ids = [player.id.model_copy(update={"settings": {"name": player.id.name}}) for player in players]
    spec = MatchSpec(game=PARAMS.game, players=(ids[0], ids[1]), num_games=4, opening_moves=0, seed=1)
    play_match(home / ".zero/matches" / name, spec, [lambda: players[0], lambda: players[1]], 4)

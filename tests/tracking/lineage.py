"""Generations with files in the real formats, but without games or training."""

from pathlib import Path

import yaml

from tests.made_games import ANY_SHA256, made_origin
from tests.made_generations import ZEROS, made_decision, made_entry, signed_attestation
from tests.parameters import smoke_text
from zero.config.params import params_digest, parse_params
from zero.network.weights import new_network, weights_bytes
from zero.storage.files import canonical_json, canonical_line, file_ref, sha256_bytes, write_atomic, write_manifest
from zero.storage.layout import PROVENANCE_FILE
from zero.storage.manifests import Champion, Checkpoint, LedgerEntry, PromotionDecision, Window

STEPS = 12
"""Optimiser steps per generation; the curve has a line every 2 steps."""
WINDOW_MD5 = "0123456789abcdef0123456789abcdef.dir"
CURVES = ("loss", "policy_loss", "value_loss", "learning_rate", "policy_accuracy", "policy_entropy")


class Lineage:
    """A lineage with a folder per generation, like a clone at its tag."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.text = smoke_text()
        self.params = parse_params(self.text)
        self.ledger: list[LedgerEntry] = []
        self.champion = Champion.model_construct()
        self.champion_data = b""
        self.urls: list[str] = []

    def folder(self, number: int) -> Path:
        return self.root / f"{self.name}-{number}"

    def tag(self, number: int) -> str:
        return f"{self.name}/gen-{number:04d}"

    def start(self) -> Path:
        folder = self._new_folder(0)
        self._write_champion(folder, 0, self.network(0))
        self._write_ledger(folder, None, self.champion.weights.sha256, 0)
        return folder

    def add(self, promoted: bool) -> Path:
        """The files of the next generation."""
        number = len(self.ledger)
        folder = self._new_folder(number)
        self._write_champion(folder, self.champion.generation, self.champion_data)
        data = self.network(number)
        decision = made_decision(
            *(self.name, number, promoted, 12 if promoted else 6, 16, sha256_bytes(data), self.champion.weights.sha256),
            interval=(0.505, 0.898) if promoted else (0.185, 0.614),
        )
        self._write_challenger(folder, number, data)
        self._write_data(folder, number)
        self._write_metrics(folder, number)
        write_manifest(folder / "metrics", decision, "gating.json")
        champion = (number, decision.challenger) if promoted else (self.champion.generation, decision.champion)
        self._write_ledger(folder, decision, champion[1], champion[0])
        self._write_provenance(folder, decision)
        if promoted:
            self.champion_data = data
            self.champion = self.champion.model_copy(update={"generation": number})
        return folder

    def _new_folder(self, number: int) -> Path:
        folder = self.folder(number)
        folder.mkdir(parents=True)
        (folder / "params.yaml").write_text(self.text)
        (folder / "constraints.txt").write_text("aiohttp==3.14.5\nmlflow==3.17.2\nnumpy==2.4.6\ntorch==2.13.0  # CPU\n")
        return folder

    def network(self, number: int) -> bytes:
        return weights_bytes(new_network(self.params.network, self.params.game, 100 * self.params.seed + number))

    def _write_champion(self, folder: Path, generation: int, data: bytes) -> None:
        state = folder / "state" / "champion"
        write_atomic(state / "weights.safetensors", data)
        weights = file_ref(state / "weights.safetensors", state)
        self.champion = Champion(generation=generation, network=self.params.network, weights=weights)
        self.champion_data = data
        write_manifest(state, self.champion)

    def _write_challenger(self, folder: Path, number: int, data: bytes) -> None:
        model = folder / "models" / "challenger"
        write_atomic(model / "weights.safetensors", data)
        write_atomic(model / "optimizer.safetensors", b"momentum")
        checkpoint = Checkpoint(
            origin=made_origin("training", number, self.name),
            network=self.params.network,
            step=STEPS * number,
            learning_rate_factor=1.0,
            weights=file_ref(model / "weights.safetensors", model),
            optimizer=file_ref(model / "optimizer.safetensors", model),
        )
        write_manifest(model, checkpoint)

    def _write_data(self, folder: Path, number: int) -> None:
        window = Window(
            origin=made_origin("replay", number, self.name),
            shards=(),
            num_games=24 * number,
            num_positions=900 * number,
        )
        write_manifest(folder / "data" / "window", window)
        outs = [{"path": "data/window", "hash": "md5", "md5": WINDOW_MD5, "size": 1, "nfiles": 1}]
        lock = {"schema": "2.0", "stages": {"replay": {"cmd": "python -m zero replay", "outs": outs}}}
        (folder / "dvc.lock").write_text(yaml.safe_dump(lock))

    def _write_metrics(self, folder: Path, number: int) -> None:
        selfplay = {
            "num_games": 24,
            "num_positions": 900,
            "mean_length": 37.5,
            "unique_games": 24,
            "ended": {"passes": 23},
        }
        write_atomic(folder / "metrics" / "selfplay.json", canonical_json(selfplay))
        steps = range(STEPS * (number - 1) + 2, STEPS * number + 1, 2)
        lines = [f"{s},{5 / s},{4 / s},{1 / s},0.02,{s / 1000},{3 / s}" for s in steps]
        write_atomic(folder / "plots" / "training.csv", "\n".join([f"step,{','.join(CURVES)}", *lines, ""]).encode())
        final = dict(zip(CURVES, map(float, lines[-1].split(",")[1:]), strict=True)) | {"step": steps[-1]}
        write_atomic(folder / "metrics" / "training.json", canonical_json(final | {"num_samples": 384}))

    def _write_ledger(self, folder: Path, decision: PromotionDecision | None, champion: str, generation: int) -> None:
        entry = made_entry(
            len(self.ledger),
            lineage=self.name,
            kind="decision" if decision else "start",
            decision=decision,
            champion=champion,
            champion_generation=generation,
            trainee=decision.challenger if decision else champion,
            params_digest=params_digest(self.params),
            provenance=ANY_SHA256,
            previous=sha256_bytes(canonical_line(self.ledger[-1])) if self.ledger else ZEROS,
        )
        self.ledger.append(entry)
        write_atomic(folder / "record" / "ledger.jsonl", b"".join(canonical_line(line) for line in self.ledger))

    def _write_provenance(self, folder: Path, decision: PromotionDecision) -> None:
        parameters = self.params.model_dump(mode="json")
        signed = signed_attestation(decision.generation, self.name, decision.challenger, **parameters)
        write_atomic(folder / PROVENANCE_FILE, signed)

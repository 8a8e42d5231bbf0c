"""Tracking on a real MLflow server, of generations whose files are in the real formats."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from zero.artifacts import (
    Champion,
    Checkpoint,
    Colours,
    LedgerEntry,
    MatchResult,
    Origin,
    PromotionDecision,
    Provenance,
    Window,
    canonical_json,
    canonical_line,
    file_ref,
    sha256_bytes,
    write_manifest,
    write_whole,
)
from zero.errors import LineageError, ServerError, StorageError
from zero.network.inference import TorchEvaluator
from zero.network.weights import new_network, weights_bytes
from zero.params import flatten, load_params, params_digest, parse_params, preset_text
from zero.tracking import TrackingReceipt, champion_url, track_generation, tracked_generations

PROJECT_DIR = Path(__file__).resolve().parents[1]
START_SECONDS = 120
STEPS = 12
"""Optimiser steps of a generation here; a line of the curve every 2."""
WINDOW_MD5 = "0123456789abcdef0123456789abcdef.dir"
CURVES = ("loss", "policy_loss", "value_loss", "learning_rate", "policy_accuracy", "policy_entropy")
ANY_SHA256 = "a" * 64


class Server:
    """An MLflow server in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        command += ["--artifacts-destination", f"{folder}/artifacts"]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | quiet, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            assert self.process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.1)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.read() == b"OK")
        except OSError:
            return False

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("mlflow"))
    yield running
    running.stop()


class Lineage:
    """A lineage whose generations are folders, each as a clone at its tag would be."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.text = preset_text("smoke")
        self.params = parse_params(self.text)
        self.ledger: list[LedgerEntry] = []
        self.champion = Champion.model_construct()
        self.champion_data = b""

    def folder(self, number: int) -> Path:
        return self.root / f"{self.name}-{number}"

    def tag(self, number: int) -> str:
        return f"{self.name}/gen-{number:04d}"

    def start(self) -> Path:
        folder = self._new_folder(0)
        self._write_champion(folder, 0, self._network(0))
        self._write_ledger(folder, None, self.champion.weights.sha256, 0)
        return folder

    def add(self, promoted: bool) -> Path:
        """The files of the next generation."""
        number = len(self.ledger)
        folder = self._new_folder(number)
        self._write_champion(folder, self.champion.generation, self.champion_data)
        data = self._network(number)
        decision = self._decision(number, promoted, sha256_bytes(data))
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

    def _network(self, seed: int) -> bytes:
        return weights_bytes(new_network(self.params.network, self.params.game, seed))

    def _origin(self, stage: str, number: int) -> Origin:
        return Origin(
            stage=stage,
            lineage=self.name,
            generation=number,
            seed=self.params.seed,
            params_digest=params_digest(self.params),
            engine=ANY_SHA256,
            inputs={},
        )

    def _write_champion(self, folder: Path, generation: int, data: bytes) -> None:
        state = folder / "state" / "champion"
        write_whole(state / "weights.safetensors", data)
        weights = file_ref(state / "weights.safetensors", state)
        self.champion = Champion(generation=generation, network=self.params.network, weights=weights)
        self.champion_data = data
        write_manifest(state, self.champion)

    def _write_challenger(self, folder: Path, number: int, data: bytes) -> None:
        model = folder / "models" / "challenger"
        write_whole(model / "weights.safetensors", data)
        write_whole(model / "optimizer.safetensors", b"momentum")
        checkpoint = Checkpoint(
            origin=self._origin("training", number),
            network=self.params.network,
            step=STEPS * number,
            learning_rate_factor=1.0,
            weights=file_ref(model / "weights.safetensors", model),
            optimizer=file_ref(model / "optimizer.safetensors", model),
        )
        write_manifest(model, checkpoint)

    def _write_data(self, folder: Path, number: int) -> None:
        window = Window(origin=self._origin("replay", number), shards=(), num_games=24 * number, num_positions=900 * number)
        write_manifest(folder / "data" / "window", window)
        outs = [{"path": "data/window", "hash": "md5", "md5": WINDOW_MD5, "size": 1, "nfiles": 1}]
        lock = {"schema": "2.0", "stages": {"replay": {"cmd": "python -m zero replay", "outs": outs}}}
        (folder / "dvc.lock").write_text(yaml.safe_dump(lock))

    def _write_metrics(self, folder: Path, number: int) -> None:
        selfplay = {"num_games": 24, "num_positions": 900, "mean_length": 37.5, "unique_games": 24, "black_wins": 13}
        write_whole(folder / "metrics" / "selfplay.json", canonical_json(selfplay))
        steps = range(STEPS * (number - 1) + 2, STEPS * number + 1, 2)
        lines = [f"{s},{5 / s},{4 / s},{1 / s},0.02,{s / 1000},{3 / s}" for s in steps]
        write_whole(folder / "plots" / "training.csv", "\n".join([f"step,{','.join(CURVES)}", *lines, ""]).encode())
        final = dict(zip(CURVES, map(float, lines[-1].split(",")[1:]), strict=True)) | {"step": steps[-1]}
        write_whole(folder / "metrics" / "training.json", canonical_json(final | {"num_samples": 384}))

    def _decision(self, number: int, promoted: bool, challenger: str) -> PromotionDecision:
        wins = 12 if promoted else 6
        match = MatchResult(
            wins=wins,
            losses=16 - wins,
            draws=0,
            as_black=Colours(wins=wins // 2, losses=8 - wins // 2, draws=0),
            as_white=Colours(wins=wins // 2, losses=8 - wins // 2, draws=0),
            unique_games=15,
            score=wins / 16,
            interval=(0.505, 0.898) if promoted else (0.185, 0.614),
            mean_length=31.25,
        )
        return PromotionDecision(
            lineage=self.name,
            generation=number,
            promoted=promoted,
            threshold=self.params.gating.threshold,
            match=match,
            challenger=challenger,
            champion=self.champion.weights.sha256,
        )

    def _write_ledger(self, folder: Path, decision: PromotionDecision | None, champion: str, generation: int) -> None:
        entry = LedgerEntry(
            lineage=self.name,
            generation=len(self.ledger),
            kind="decision" if decision else "start",
            decision=decision,
            champion=champion,
            champion_generation=generation,
            trainee=decision.challenger if decision else champion,
            params_digest=params_digest(self.params),
            lock_digest=sha256_bytes(b""),
            previous=sha256_bytes(canonical_line(self.ledger[-1])) if self.ledger else "0" * 64,
        )
        self.ledger.append(entry)
        write_whole(folder / "record" / "ledger.jsonl", b"".join(canonical_line(line) for line in self.ledger))

    def _write_provenance(self, folder: Path, decision: PromotionDecision) -> None:
        provenance = Provenance(
            lineage=self.name,
            generation=decision.generation,
            parent_commit=f"{decision.generation:040x}",
            parent_tag=self.tag(decision.generation - 1),
            params_digest=params_digest(self.params),
            engine=ANY_SHA256,
            lock_file=ANY_SHA256,
            profile={"device": "cpu", "isa": "AVX2"},
            champion=decision.champion,
            challenger=decision.challenger,
            window="b" * 64,
            games=(),
            match=(),
        )
        write_manifest(folder / "record", provenance, "provenance.json")


@pytest.fixture
def lineage(tmp_path, request):
    """A lineage named by its test, with generation 0."""
    made = Lineage(tmp_path, request.node.name.removeprefix("test_").replace("_", "-"))
    made.start()
    return made

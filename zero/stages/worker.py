"""The process that plays shards: a long-lived child of the executor, which exchanges lines of JSON with it.

Input: a ShardSpec or PartialSpec per line. Output: `{"event": "progress", "done": 3}` during play, then `{"event":
"receipt", ...}` or `{"event": "error", "message": ...}`. The worker exits at the end of its standard input, also
when its parent dies.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np
from pydantic import ValidationError

from zero.data.records import write_records
from zero.errors import ZeroError
from zero.games.rules import rules_of
from zero.network.inference import new_evaluator
from zero.network.profile import prepare_inference
from zero.play.batched_games import play_games
from zero.play.slots import PlaySettings, play_settings
from zero.search.streams import stream_of
from zero.stages.meter import Meter, worker_name
from zero.stages.spec import (
    PartialSpec,
    ShardReceipt,
    ShardSpec,
    check_code,
    check_profile,
    read_receipts,
    shard_profile,
)
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.store import Store

EXIT_PARENT_DIED, EXIT_STALLED = 3, 4
"""Exit statuses of a worker whose parent died while it played, and of one that stood still."""
STALL_SECONDS = 3600.0
"""Time without a batch after which a worker ends itself, so that its shard is played again: a driver or a library can
hang. A batch of the largest network takes minutes on a slow processor."""


def play_into_store(
    spec: ShardSpec, store: Store, progress: Callable[[int], None] | None = None, is_first: bool = False
) -> ShardReceipt:
    """Plays a shard and stores it.

    The receipt is stored first, so that no shard is without one. A shard that is in the store already is not played
    again: its worker died before it could reply.

    Args:
      spec: what to play.
      store: where the weights are, and where the shard goes.
      progress: called with the number of finished games after each batch.
      is_first: True for the first shard of this process, which is charged for the start of the process.

    Raises:
      LineageError: this checkout has another code digest or another package lock than the specification, or this
        machine another execution profile.
      ParamsError: this process has computed with other instructions.
      StorageError: the weights are not in the store, or the store cannot be written.
    """
    check_code(spec.kind, spec.engine, spec.lock_file)
    stop_after = spec.stop_after if isinstance(spec, PartialSpec) else 0
    # A partial shard has the key of the complete one, so a finished receipt would belong to other work.
    if not stop_after and (receipt := finished_receipt(spec, store)):
        return receipt
    # `spec.device` is the section `profile` of the parameters, `spec.profile` the execution profile.
    meter = Meter(spec.device.device, since_start=is_first)
    prepare_inference(spec.device)
    check_profile(spec.profile, shard_profile(spec.device))
    games = range(spec.first_game, spec.first_game + spec.num_games)
    # One stream per game, keyed by its number in the generation: the split into shards does not change a game.
    streams = np.stack([stream_of(spec.seed, spec.generation, spec.kind, game) for game in games])
    evaluators = [new_evaluator(store.get_weights(digest), spec.device) for digest in spec.weights]
    played = play_games(
        rules_of(spec.game),
        shard_settings(spec),
        evaluators,
        spec.weights,
        streams,
        num_slots=spec.play.num_slots,
        max_nodes=spec.search.max_nodes,
        progress=progress,
        search_threads=spec.device.search_threads,
        half_batches=spec.device.half_batches,
        stop_after=stop_after,
    )
    data = write_records(played.games)
    receipt = ShardReceipt(
        key=spec.key(),
        sha256=sha256_bytes(data),
        kind=spec.kind,
        first_game=spec.first_game,
        num_games=len(played.games),
        num_evaluations=played.num_evaluations,
        worker=worker_name(),
        begun=meter.begun,
        pid=os.getpid(),
        **meter.read()._asdict(),
    )
    # The receipt first: a crash between the two leaves a receipt without a shard, which is harmless.
    store.put_receipt(receipt.key, receipt.sha256, receipt.worker, canonical_json(receipt))
    store.put_shard(receipt.key, data)
    return receipt


def finished_receipt(spec: ShardSpec, store: Store) -> ShardReceipt | None:
    """Receipt of a shard that is in the store and not corrupt; None if it must be played."""
    shard = store.get_shard(spec.key())
    receipts = read_receipts(store.get_receipts(spec.key())) if shard is not None else []
    return next((each for each in receipts if shard and each.sha256 == shard.sha256), None)


def shard_settings(spec: ShardSpec) -> PlaySettings:
    """The settings of the kernels that play a shard."""
    return play_settings(
        spec.search,
        spec.play,
        num_players=len(spec.weights),
        first_game=spec.first_game,
        resign_threshold=spec.resign_threshold,
        gumbel_scale=1.0 if spec.kind == "selfplay" else 0.0,
    )


def serve(store: Store, lines_in: TextIO, lines_out: TextIO) -> None:
    """Plays the specifications in `lines_in` until it ends; a shard in progress is then abandoned."""
    specs: queue.Queue[str | None] = queue.Queue()
    busy = threading.Event()
    reported, last_batch = 0, time.monotonic()

    def read() -> None:
        nonlocal last_batch
        for line in lines_in:
            last_batch = time.monotonic()  # before `busy`: this worker may have waited for hours
            # Before `put`: afterwards the main thread could have played and cleared it already, and it would stay set.
            busy.set()
            specs.put(line)
        if busy.is_set():
            # No one needs this shard any more; writes are atomic, so nothing partial remains.
            os._exit(EXIT_PARENT_DIED)
        specs.put(None)

    def watch() -> None:
        while True:
            time.sleep(STALL_SECONDS / 60)
            if busy.is_set() and time.monotonic() - last_batch > STALL_SECONDS:
                text = f"no batch for {STALL_SECONDS:.0f} s: the network, its library or its driver hangs"
                print(text, file=sys.stderr, flush=True)
                os._exit(EXIT_STALLED)

    def write_event(event: str, **fields: Any) -> None:
        lines_out.write(json.dumps({"event": event, **fields}) + "\n")
        lines_out.flush()

    def report(done: int) -> None:
        nonlocal reported, last_batch
        last_batch = time.monotonic()
        if done > reported:
            reported = done
            write_event("progress", done=done)

    # A thread of its own reads the input, so that the end of the parent is seen also in the middle of a shard.
    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=watch, daemon=True).start()
    is_first = True
    while (line := specs.get()) is not None:
        try:
            reported = 0
            spec = PartialSpec.model_validate_json(line)  # a complete specification too: its `stop_after` is 0
            receipt = play_into_store(spec, store, report, is_first)
            is_first = False
            busy.clear()
            write_event("receipt", **receipt.model_dump(mode="json"))
        except ValidationError as error:
            busy.clear()
            write_event("error", message=f"not a shard specification: {error.errors()[0]['msg']}")
        except ZeroError as error:
            busy.clear()
            write_event("error", message=str(error))


def main(store: Store) -> None:
    """Serves this process's standard input and output."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # other prints must not break the protocol
    serve(store, sys.stdin, out)

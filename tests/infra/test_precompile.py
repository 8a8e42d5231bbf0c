"""The kernels that the installation compiles are those that games need: no argument has another type."""

import sys
from typing import Any

from infra.precompile import main
from tests.end_to_end.project import SOURCE_DIR, run
from tests.play.shards import GO5, SELFPLAY, hashes, play_shard
from zero.config.params import SearchParams
from zero.data.adjudication import adjudicate, adjudicate_games
from zero.data.records import read_records, write_records
from zero.data.samples import Sampler, sample_games, write_batch
from zero.play.lockstep_games import advance
from zero.play.single_game import SingleGamePlayer
from zero.players.network_player import NetworkPlayer, advance_searches, open_slot, play_in_slot
from zero.players.player import PlayerId
from zero.search.tree import reroot
from zero.search.virtual_loss import backup_leaves, select_leaves

KERNELS: tuple[Any, ...] = (
    advance,
    adjudicate_games,
    write_batch,
    advance_searches,
    open_slot,
    play_in_slot,
    reroot,
    select_leaves,
    backup_leaves,
)


def test_the_types_of_the_compiled_kernels_are_those_of_games_of_every_kind() -> None:
    # In a new process, where no other test has compiled anything.
    run([sys.executable, "-c", f"from {__name__} import check; check()"], SOURCE_DIR)


def check() -> None:
    main()
    compiled = [list(kernel.signatures) for kernel in KERNELS]
    assert all(compiled)

    played = play_shard(GO5, SELFPLAY, hashes(GO5), num_games=3)
    match = SELFPLAY._replace(num_players=2)
    play_shard(GO5, match, hashes(GO5, "a", "b"), num_games=2)
    games = read_records(write_records(played.games), "games")
    adjudicate(GO5, games)
    with Sampler(GO5, sample_games(games), 1, 1, batch_size=4, random_symmetry=False) as sampler:
        next(sampler.batches(0, 1))
    (evaluator,) = hashes(GO5)
    network = PlayerId(name="a", kind="network", settings={})
    player = NetworkPlayer(network, GO5, evaluator, SearchParams(root="gumbel"), 8, num_slots=4, seed=1)
    player.begin([0])
    player.choose([0])
    player.play(0, 0)
    session = SingleGamePlayer(GO5, evaluator, SearchParams(root="gumbel"), num_simulations=8, max_nodes=32)
    session.search()
    session.play(0)

    assert [list(kernel.signatures) for kernel in KERNELS] == compiled

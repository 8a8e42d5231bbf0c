"""GNU Go and Leela Zero as players: their rules, their moves and their limits."""

import os
import sys
from pathlib import Path

import pytest

from tests.interop.networks import GO19, trained
from tests.oracle.gnugo import needs_gnugo
from tests.oracle.leelaz import needs_leelaz
from tests.parameters import network_params
from zero.errors import OpponentError
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules
from zero.interop.leela_zero import VALUE_HIDDEN, leela_zero_weights
from zero.players.gtp import gnugo, leelaz

SMALL_RULES, LARGE_RULES = go_rules(5, 5, 7.5), go_rules(19, 19, 7.5)


@needs_gnugo
def test_gnugo_gets_our_rules():
    player = gnugo(3, go_rules(5, 5, 7.5, allow_suicide=True))
    player.close()
    assert player.id.name == "GNU Go 3.8 level 3"
    assert player.id.settings["level"] == 3
    assert player.id.settings["command"] == (
        "gnugo --mode gtp --chinese-rules --positional-superko --capture-all-dead --allow-all-suicide "
        "--level 3 --seed '{seed}'"
    )


@needs_gnugo
def test_a_move_that_gnugo_rejects_forfeits_with_its_reason():
    player = gnugo(1, SMALL_RULES)
    player.begin([1])
    for name in ("A1", "A1"):
        player.play(1, name_to_action(SMALL_RULES, name))
    (reply,) = player.choose([1])
    player.close()
    assert reply.fault == "gnugo rejected `play white A1`: illegal move"


@needs_gnugo
def test_a_size_that_gnugo_does_not_support_is_rejected():
    with pytest.raises(OpponentError, match=r"GNU Go 3.8 cannot play on 20x20: .*unacceptable size; choose a size"):
        gnugo(1, go_rules(20, 20))


def test_a_missing_program_is_reported_with_its_package(monkeypatch):
    monkeypatch.setattr("zero.players.gtp_process.SYSTEM_GAMES_DIR", "/nowhere")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(OpponentError, match=r"GNU Go is not installed; install it .*`apt install gnugo`"):
        gnugo(1, SMALL_RULES)
    with pytest.raises(OpponentError, match=r"Leela Zero is not installed; install it .*`apt install leela-zero`"):
        leelaz(Path("weights.txt"), 1, LARGE_RULES)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("leelaz") / "weights.txt"
    path.write_bytes(leela_zero_weights(trained(network_params(value_hidden=VALUE_HIDDEN), GO19)))
    return path


@needs_leelaz
def test_leelaz_plays_and_repeats_itself(weights):
    chosen = []
    for _ in range(2):
        player = leelaz(weights, 3, LARGE_RULES, seed=1)
        player.begin([1])
        player.play(1, name_to_action(LARGE_RULES, "D4"))
        replies = player.choose([1])
        player.play(1, replies[0].action)
        player.play(1, name_to_action(LARGE_RULES, "Q16"))
        replies += player.choose([1])
        chosen.append(replies)
        player.close()
    assert chosen[0] == chosen[1]
    assert not any(reply.fault for reply in chosen[0])
    assert player.id.name.startswith("Leela Zero 0.17, 3 playouts, weights ")


@needs_leelaz
def test_a_size_that_leelaz_does_not_support_is_rejected(weights):
    with pytest.raises(OpponentError, match=r"Leela Zero 0.17 cannot play on 9x9: .*unacceptable size"):
        leelaz(weights, 1, go_rules(9, 9))


@needs_leelaz
def test_missing_and_corrupt_weights_of_leelaz_are_rejected(tmp_path):
    with pytest.raises(OpponentError, match=r"cannot find the weight file .*missing.txt; give the path"):
        leelaz(tmp_path / "missing.txt", 1, LARGE_RULES)
    (tmp_path / "broken.txt").write_text("nothing\n")
    with pytest.raises(OpponentError, match="does not speak GTP: leelaz ended with status 1"):
        leelaz(tmp_path / "broken.txt", 1, LARGE_RULES)

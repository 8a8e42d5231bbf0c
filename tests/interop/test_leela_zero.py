"""Leela Zero with the exported weights evaluates positions like the network."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.interop.networks import GO9, GO19, GOMOKU19, trained
from tests.oracle.go import GoGame
from tests.oracle.leelaz import Heatmap, Leelaz, needs_leelaz
from tests.oracle.planes import planes
from tests.parameters import network_params
from zero.errors import ParamsError
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules
from zero.interop.leela_zero import VALUE_HIDDEN, check_fits, leela_zero_weights
from zero.network.model import AlphaZeroNetwork
from zero.network.spec import network_spec
from zero.network.weights import load_network, weights_bytes

SIZE, NUM_POINTS = 19, 361
RULES = go_rules(SIZE, SIZE, 7.5, False)
TOLERANCE = 1e-3
"""Relative for the policy, in addition to the rounding of the heatmap; absolute for the winrate. Required: 1e-2."""

KO = "K11 L11 J10 M10 K9 L9 A1 K10 L10"
POSITIONS = {
    "the empty board": "",
    "White to move, a stone captured": "B1 A1 A2",
    "White to move, K10 is empty and illegal for the ko": KO,
    "Black to move, more moves than the planes hold": f"{KO} Q4",
    "Black to move, after passes": "D4 pass Q16 R4 pass C17",
    "White to move, after the first pass": "pass",
}

NUM_BLOCKS, NUM_CHANNELS = 2, 16


@pytest.fixture(scope="module")
def network() -> AlphaZeroNetwork:
    model = trained(
        network_params(num_blocks=NUM_BLOCKS, num_channels=NUM_CHANNELS, value_hidden=VALUE_HIDDEN), GO19, seed=3
    )
    with torch.no_grad():
        model.get_parameter("policy_head.output.bias")[NUM_POINTS] += 4.0  # so that the heatmap shows the pass
        model.get_parameter("tower.1.first.conv.weight")[0] = 1e-42  # the rest of a dead channel after weight decay
    return model


@pytest.fixture(scope="module")
def leelaz(network: AlphaZeroNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leelaz]:
    path = tmp_path_factory.mktemp("weights") / "weights.txt"
    path.write_bytes(leela_zero_weights(network))
    with Leelaz(path) as program:
        yield program


def shown_after(leelaz: Leelaz, moves: str) -> tuple[Heatmap, GoGame]:
    """Leela Zero's heatmap of a position, and the position."""
    game = GoGame(SIZE, SIZE, 7.5, False, RULES.max_moves)
    leelaz.ask("clear_board")
    for name in moves.split():
        leelaz.ask(f"play {'black' if game.to_play == 1 else 'white'} {name}")
        game.play(name_to_action(RULES, name))
    return leelaz.heatmap(), game


def agrees(shown: Heatmap, network: AlphaZeroNetwork, game: GoGame) -> bool:
    """True if every point, the pass and the winrate equal those of the network."""
    images = torch.from_numpy(planes(SIZE, SIZE, game.boards, game.to_play)).view(1, -1, SIZE, SIZE)
    with torch.no_grad():
        logits, value = network(images)[:2]
    policy = torch.softmax(logits.double(), 1)[0].numpy()
    for row, column in game.board.black | game.board.white:
        policy[row * SIZE + column] = 0.0  # not shown where a stone is
    low, high = (np.floor(1000 * policy * factor) for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    policy_agrees = np.all((low <= shown.policy) & (shown.policy <= high))
    return bool(policy_agrees) and abs(shown.winrate - (float(value) + 1) / 2) <= TOLERANCE


@needs_leelaz
@pytest.mark.parametrize("moves", POSITIONS.values(), ids=POSITIONS.keys())
def test_leelaz_shows_the_policy_and_winrate_of_the_network(leelaz, network, moves):
    shown, game = shown_after(leelaz, moves)
    assert agrees(shown, network, game)
    assert (shown.policy > 10).sum() > 5 and shown.policy[NUM_POINTS] > 10, "too even to tell anything"


@needs_leelaz
def test_the_komi_of_leelaz_does_not_reach_the_network(leelaz, network):
    leelaz.ask("komi 0.5")
    shown, game = shown_after(leelaz, KO)
    leelaz.ask("komi 7.5")
    assert agrees(shown, network, game)


def test_equal_networks_give_equal_bytes(network):
    assert leela_zero_weights(load_network(weights_bytes(network))) == leela_zero_weights(network)


def test_the_network_is_unchanged(network):
    before = weights_bytes(network)
    leela_zero_weights(network)
    assert weights_bytes(network) == before


def test_the_lines_have_the_lengths_of_the_format(network):
    lines = leela_zero_weights(network).decode().splitlines()
    channels, points, actions = NUM_CHANNELS, NUM_POINTS, NUM_POINTS + 1

    def convolution(weights: int, outputs: int) -> list[int]:
        return [weights, outputs, outputs, outputs]

    assert lines[0] == "1"
    assert [len(line.split()) for line in lines[1:]] == [
        *convolution(18 * channels * 9, channels),
        *(count for _ in range(2 * NUM_BLOCKS) for count in convolution(channels * channels * 9, channels)),
        *convolution(2 * channels, 2),
        *(2 * points * actions, actions),
        *convolution(channels, 1),
        *(points * VALUE_HIDDEN, VALUE_HIDDEN, VALUE_HIDDEN, 1),
    ]


@pytest.mark.parametrize(
    ("game", "changes", "message"),
    [
        (GO9, {}, r"for a 9x9 board with 82 actions, but Leela Zero plays 19x19 Go only; .*`--format onnx`"),
        (GOMOKU19, {}, "for a 19x19 board with 361 actions"),
        (GO19, {"tower": "plain"}, r"network.tower is 'plain', .* 'residual'; .*`--format onnx`"),
        (GO19, {"tower": "shallow"}, "network.tower is 'shallow'"),
        (GO19, {"heads": "separate"}, "network.heads is 'separate', .* 'joint'"),
        (GO19, {"value_hidden": 64}, "network.value_hidden is 64, .* 256"),
        (GO19, {"global_pooling": True}, "network.global_pooling is True, .* False"),
        (GO19, {"pooled_heads": True}, "network.pooled_heads is True, .* False"),
    ],
)
def test_a_network_that_leela_zero_does_not_support_is_rejected(game, changes, message):
    with pytest.raises(ParamsError, match=message):
        check_fits(network_spec(network_params(**({"value_hidden": VALUE_HIDDEN} | changes)), game))


def test_heads_that_only_training_uses_are_left_out(network):
    more_heads = network.spec.network.model_copy(update={"ownership_head": True, "score_head": True})
    lines, more_lines = (leela_zero_weights(model).splitlines() for model in (network, trained(more_heads, GO19)))
    assert [len(line.split()) for line in more_lines] == [len(line.split()) for line in lines]

"""The uniform player: moves are legal, equally likely, and keyed by seed, game and move."""

from collections import Counter

import pytest

from tests.games.kernel_game import KernelGame
from tests.players.games import moves, played_games
from zero.games.rules import go_rules, gomoku_rules
from zero.players.uniform import UniformPlayer


@pytest.mark.parametrize("rules", [go_rules(3, 3), gomoku_rules(3, 3, 3)], ids=["go", "gomoku"])
def test_all_legal_actions_are_equally_likely(rules):
    """Each of 9 or 8 actions is expected about 300 times in 2,700 draws, with a standard deviation of 17."""
    games = range(2700)
    player = UniformPlayer(rules, 1)
    player.begin(games)
    game = KernelGame(rules)
    for action in (0, 4) if rules.in_a_row else (0, 1):
        game.play(action)
        for number in games:
            player.play(number, action)
    counts = Counter(reply.action for reply in player.choose(games))
    legal = game.legal_actions()
    assert set(counts) == legal
    expected = len(games) / len(legal)
    assert all(abs(count - expected) < 4.5 * expected**0.5 for count in counts.values()), counts


def test_other_seeds_and_games_draw_other_moves():
    rules = go_rules(9, 9)
    drawn = set()
    for seed in range(3):
        player = UniformPlayer(rules, seed)
        games = played_games(rules, player, player, [1, 2])
        drawn |= {moves(game) for game in games.values()}
    assert len(drawn) == 6

"""Complete games between players through the protocol, with the kernels as the referee."""

from collections.abc import Sequence

from tests.games.kernel_game import KernelGame
from zero.games.position import Rules
from zero.players.player import RESIGN, Player


def played_games(rules: Rules, black: Player, white: Player, numbers: Sequence[int]) -> dict[int, KernelGame]:
    """Plays these games at once, to their end or to a resignation; checks that no player forfeits."""
    games = {number: KernelGame(rules) for number in numbers}
    players = {id(player): player for player in (black, white)}.values()
    for player in players:
        player.begin(numbers)
    open_games = list(numbers)
    while open_games:
        for colour, player in ((1, black), (-1, white)):
            to_move = [number for number in open_games if games[number].to_play == colour]
            for number, reply in zip(to_move, player.choose(to_move), strict=True):
                assert not reply.fault, reply
                if reply.action != RESIGN:
                    games[number].play(reply.action)
                    for each in players:
                        each.play(number, reply.action)
                if reply.action == RESIGN or games[number].ended:
                    open_games.remove(number)
                    for each in players:
                        each.end(number)
    return games


def moves(game: KernelGame) -> bytes:
    """All boards of a game: equal for equal games."""
    return bytes(game.history.boards[: game.num_moves + 1].tobytes())

"""Engines for the tests: in this process, or as a program of its own (`python -m tests.interop.gtp.engines KIND`)."""

import io
import os
import sys
import tempfile

from tests.oracle.gtp import GtpProgram
from tests.search.evaluators import HashEvaluator
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules
from zero.interop.gtp.engine import Engine
from zero.interop.gtp.serve import serve_gtp
from zero.play.player import Player
from zero.players.single_game import Mind, OpponentMind, PlayerMind
from zero.players.uniform import UniformPlayer
from zero.search.evaluator import Evaluator, UniformEvaluator

GO5, GO9 = go_rules(5, 5, 0.5), go_rules(9, 9, 7.5)
GOMOKU = gomoku_rules(6, 6, 4)
NUM_SIMULATIONS = 30


def player_mind(
    rules: Rules = GO5,
    evaluator: Evaluator | None = None,
    num_simulations: int = NUM_SIMULATIONS,
    limit: float | None = None,
    **settings: float,
) -> PlayerMind:
    """A search with a network that knows nothing; `limit`: seconds of a search; `settings`: of the mind."""

    def new_player(changed: Rules) -> Player:
        judge = evaluator or HashEvaluator(changed)
        most = max(40, 10 * num_simulations)
        return Player(changed, judge, num_simulations, 1.5, False, False, most, num_leaves=4, seconds=limit)

    return PlayerMind("a hash", new_player, rules, num_simulations, **settings)


def random_mind(rules: Rules = GO5) -> OpponentMind:
    return OpponentMind("random", lambda changed: UniformPlayer(changed, seed=3), rules)


def engine(mind: Mind | None = None, rules: Rules = GO5) -> Engine:
    """An engine that is interrupted at once."""
    return Engine(mind or player_mind(rules), rules)


def ask(one: Engine, line: str) -> str:
    """The answer to a command, or its error after a question mark."""
    from zero.errors import ZeroError

    name, *words = line.split()
    try:
        answer = one.run(name, tuple(words))
    except ZeroError as error:
        return f"? {error}"
    return answer if isinstance(answer, str) else "\n".join(answer)


def ask_all(one: Engine, lines: str) -> list[str]:
    """The answers to commands that are separated by semicolons."""
    return [ask(one, line) for line in lines.split(";")]


def transcript(data: bytes, mind: Mind | None = None, rules: Rules = GO5) -> str:
    """All that an engine writes when these bytes are its input."""
    out = io.StringIO()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        serve_gtp(file, out, lambda interrupted: Engine(mind or player_mind(rules), rules, interrupted))
    return out.getvalue()


def stones(one: Engine) -> set[str]:
    """The points with stones."""
    return {point for line in ask(one, "final_status_list alive").splitlines() for point in line.split()}


def engine_program(kind: str) -> GtpProgram:
    """An engine as a program of its own: `network`, `uniform`, `random` or `gomoku`."""
    return GtpProgram([sys.executable, "-m", "tests.interop.gtp.engines", kind])


def network_9x9() -> Evaluator:
    """A small network with random weights."""
    import torch

    from tests.network.networks import CPU, TINY
    from zero.config.params import GoParams
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    torch.set_num_threads(1)
    game = GoParams(name="go", size=9, komi=7.5, allow_suicide=False)
    return new_evaluator(weights_bytes(new_network(TINY, game, 3)), CPU)


def main() -> None:
    """Serves one of them on the standard input and output."""
    kind = sys.argv[1]
    rules = {"gomoku": GOMOKU, "uniform": GO5}.get(kind, GO9)
    mind: Mind
    if kind == "random":
        mind = random_mind(rules)
    elif kind == "network":
        mind = player_mind(rules, network_9x9(), num_simulations=24)
    else:
        mind = player_mind(rules, UniformEvaluator(), num_simulations=200)
    serve_gtp(sys.stdin, sys.stdout, lambda interrupted: Engine(mind, rules, interrupted))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

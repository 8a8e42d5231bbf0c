"""Engines for the tests: in this process, or as a separate program (`python -m tests.interop.engines KIND`)."""

import io
import os
import sys
import tempfile

from tests.oracle.gtp import GtpProgram
from tests.search.evaluators import HashEvaluator
from zero.config.params import SearchParams
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules, othello_rules
from zero.interop.gtp import GtpServer, serve_gtp
from zero.play.single_game import SingleGamePlayer
from zero.players.session import NetworkSession, PlayerSession, Session
from zero.players.uniform import UniformPlayer
from zero.search.evaluator import Evaluator
from zero.storage.manifests import NO_RESIGNATION

GO5, GO9 = go_rules(5, 5, 0.5), go_rules(9, 9, 7.5)
GOMOKU = gomoku_rules(6, 6, 4)
OTHELLO = othello_rules(4, 4)
NUM_SIMULATIONS = 30
SEARCH = SearchParams(random_symmetry=False)


def network_session(
    rules: Rules = GO5,
    evaluator: Evaluator | None = None,
    num_simulations: int = NUM_SIMULATIONS,
    seconds: float | None = None,
    resign_threshold: float = NO_RESIGNATION,
) -> NetworkSession:
    """A session of an untrained network. `seconds`: time limit of a search."""

    def new_player(changed: Rules) -> SingleGamePlayer:
        used = evaluator or HashEvaluator(changed)
        max_nodes = max(40, 10 * num_simulations)
        return SingleGamePlayer(changed, used, SEARCH, num_simulations, max_nodes, num_leaves=4)

    return NetworkSession("a hash", new_player, rules, num_simulations, resign_threshold, seconds)


def random_session(rules: Rules = GO5) -> PlayerSession:
    return PlayerSession("random", lambda changed: UniformPlayer(changed, seed=3), rules)


def engine(session: Session | None = None, rules: Rules = GO5) -> GtpServer:
    """An engine whose analyses are interrupted at once."""
    return GtpServer(session or network_session(rules), rules)


def answer(one: GtpServer, line: str) -> str:
    """The answer to a command; after a question mark if it failed."""
    from zero.errors import ZeroError

    name, *words = line.split()
    try:
        result = one.run(name, tuple(words))
        return result if isinstance(result, str) else "\n".join(result)
    except ZeroError as error:
        return f"? {error}"


def answers(one: GtpServer, lines: str) -> list[str]:
    """The answers to commands that are separated by semicolons."""
    return [answer(one, line) for line in lines.split(";")]


def transcript(data: bytes, session: Session | None = None, rules: Rules = GO5) -> str:
    """Everything that an engine writes for this input."""
    out = io.StringIO()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        serve_gtp(session or network_session(rules), rules, file, out)
    return out.getvalue()


def stones(one: GtpServer) -> set[str]:
    """The points with stones."""
    return {point for line in answer(one, "final_status_list alive").splitlines() for point in line.split()}


def engine_program(kind: str) -> GtpProgram:
    """An engine as a separate program: `network` or `random`."""
    return GtpProgram([sys.executable, "-m", "tests.interop.engines", kind])


def network_9x9() -> Evaluator:
    """A small network with random weights."""
    from tests.network.networks import CPU, TINY
    from zero.config.params import GoParams
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    game = GoParams(name="go", size=9, komi=7.5, allow_suicide=False)
    return new_evaluator(weights_bytes(new_network(TINY, game, 3)), CPU)


def main() -> None:
    """Serves one of them on standard input and output."""
    kind = sys.argv[1]
    session: Session = random_session(GO9)
    if kind == "network":
        session = network_session(GO9, network_9x9(), num_simulations=24)
    serve_gtp(session, GO9, sys.stdin, sys.stdout)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

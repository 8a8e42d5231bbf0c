"""GTP engines that fail in every way, each in its own process, and the effect on their games."""

import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from zero.errors import OpponentError
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.players.gtp import GtpPlayer, file_digests, game_seed, gtp_program
from zero.players.gtp_process import MAX_DIAGNOSTICS_BYTES, EngineError, EngineFailureError, GtpEngine
from zero.players.player import RESIGN, Reply
from zero.storage.files import sha256_file

ENGINE = Path(__file__).parent / "engines" / "engine.py"
RULES = go_rules(9, 9, 7.5)
LONG_SECONDS, SHORT_SECONDS = 120.0, 6.0
"""Time limits for engines that answer, even on a busy machine, and for engines that do not."""
AT = 2
"""The move at which an engine fails."""

Opener = Callable[..., GtpPlayer]


def command(fault: str = "none", at: int = AT, log: Path | None = None) -> list[str]:
    return [sys.executable, "-I", "-S", str(ENGINE), fault, str(at), *([str(log)] if log else [])]


@pytest.fixture
def opened(monkeypatch) -> Iterator[Opener]:
    """Makes players of the test's engine and closes them at the end; checks that no process is left."""
    monkeypatch.setattr("zero.players.gtp.ANSWER_SECONDS", LONG_SECONDS)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})  # two engines search at once on any machine
    before = set(psutil.Process().children(recursive=True))
    players: list[GtpPlayer] = []

    def make(fault: str = "none", at: int = AT, log: Path | None = None) -> GtpPlayer:
        players.append(gtp_program(command(fault, at, log), RULES))
        return players[-1]

    yield make
    for player in players:
        player.close()
    remaining = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert not remaining


def point(name: str) -> int:
    return name_to_action(RULES, name)


def make_move(player: GtpPlayer, game: int) -> Reply:
    (reply,) = player.choose([game])
    if not reply.fault:
        player.play(game, reply.action)
    return reply


def at_fault(player: GtpPlayer) -> Reply:
    """Reply of the engine of game 1 at its second move. Game 2 continues beside it and game 3 follows."""
    player.begin([1, 2])
    assert player.choose([1, 2]) == [Reply(point("A1")), Reply(point("A1"))]
    for game in (1, 2):
        player.play(game, point("A1"))
    player.play(1, point("J9"))
    (reply,) = player.choose([1])
    if reply.fault:
        assert player.choose([1]) == [reply], "a fault is final"
    player.end(1)
    player.play(2, point("B1"))
    assert make_move(player, 2) == Reply(point("C1"))
    player.begin([3])
    assert make_move(player, 3) == Reply(point("A1"))
    return reply


def test_if_no_process_can_be_started_no_game_is_forfeited(opened):
    player = opened()
    with open("/dev/null") as file:  # the lowest number that is free
        lowest, (soft, hard) = file.fileno(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
    try:
        with pytest.raises(OpponentError, match=r"cannot start .*Too many open files; play fewer games at once"):
            player.begin([1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    player.begin([2])
    assert make_move(player, 2) == Reply(point("A1"))


def test_concurrent_calls_wait_for_the_same_answer(opened, tmp_path):
    player = opened(log=tmp_path / "log")
    player.begin([1])
    with ThreadPoolExecutor(2) as threads:
        replies = [each.result() for each in [threads.submit(player.choose, [1]) for _ in range(2)]]
    assert replies == [[Reply(point("A1"))]] * 2
    assert (tmp_path / "log").read_text().count("genmove") == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("die", r"ended with status 3 at `genmove black`; log tail: the board is on fire"),
        ("no point", r"'Z99' is not a point of a 9x9 board; points are A1 to J9"),
        ("noise in the answer", r"is not a point"),
    ],
)
def test_a_fault_forfeits_one_game_and_gives_the_reason(opened, fault, reason):
    reply = at_fault(opened(fault))
    assert reply.action == RESIGN
    assert re.search(reason, reply.fault), reply.fault


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("kill", rf"was killed by signal {signal.SIGKILL:d} at `genmove b`"),
        ("flood", r"wrote more than 1,048,576 bytes at `genmove b`"),
        ("endless answer", r"wrote more than 1,048,576 bytes"),
        ("wrong number", r"answered `genmove b` with '=3 A1', without the number 2"),
        ("closed output", r"closed its output at `genmove b`"),
        ("hang", r"did not answer `genmove b` within 1 s; output: \(none\)"),
        ("half an answer", r"did not answer `genmove b` within 1 s; output: '=2 A1'"),
    ],
)
def test_an_engine_that_answers_incorrectly_is_ended_with_the_reason(fault, reason):
    with GtpEngine(command(fault, at=1)) as engine:
        engine.request("name")  # it has started
        engine.seconds = LONG_SECONDS if "within" not in reason else 1.0
        with pytest.raises(EngineError, match=reason):
            engine.request("genmove b")
        with pytest.raises(EngineError, match="was ended before `name`"):
            engine.request("name")


def test_a_superfluous_answer_is_found_at_the_next_request(opened):
    player = opened("twice", at=1)
    player.begin([1])
    assert make_move(player, 1) == Reply(point("A1"))
    player.play(1, point("J9"))
    assert "answered `play white J9` with '=4 A1', without the number 5" in make_move(player, 1).fault


def test_diagnostics_do_not_disturb_the_answer(opened):
    assert at_fault(opened("long diagnostics")) == Reply(point("B1"))


def test_lines_before_the_first_answer_are_skipped(opened):
    assert at_fault(opened("banner", at=0)) == Reply(point("B1"))


def test_resignation_is_not_a_fault(opened):
    assert at_fault(opened("resign")) == Reply(RESIGN)


def test_an_engine_receives_the_moves_that_it_did_not_make(opened, tmp_path):
    log = tmp_path / "log"
    player = opened(log=log)
    log.unlink()  # written by the trial start
    player.begin([1])
    for name in ("E5", "D4"):  # an opening
        player.play(1, point(name))
    assert make_move(player, 1) == Reply(point("A1"))
    player.play(1, RULES.num_points)
    assert make_move(player, 1) == Reply(point("B1"))
    player.end(1)
    assert [line.split(maxsplit=1)[-1] for line in log.read_text().splitlines()] == [
        *("boardsize 9", "komi 7.5", "clear_board"),
        *("play black E5", "play white D4", "genmove black", "play white pass", "genmove black"),
        "quit",
    ]


def test_if_another_move_is_played_the_game_is_replayed(opened, tmp_path):
    log = tmp_path / "log"
    player = opened(log=log)
    player.begin([1])
    player.choose([1])
    player.play(1, point("E5"))
    player.play(1, point("D4"))
    assert make_move(player, 1) == Reply(point("A1"))
    sent = [line.split(maxsplit=1)[-1].strip() for line in log.read_text().splitlines()]
    assert sent[-5:] == ["genmove black", "clear_board", "play black E5", "play white D4", "genmove black"]


def test_an_engine_that_dies_during_setup_forfeits_its_game(opened, tmp_path):
    switch = tmp_path / "gone"
    script = f'[ -e {switch} ] && {{ echo "no room" >&2; exit 1; }}; exec "$@"'
    player = gtp_program(["sh", "-c", script, "sh", *command()], RULES)
    switch.touch()
    player.begin([1])
    switch.unlink()
    player.begin([2])
    first, second = player.choose([1, 2])
    player.close()
    assert first.fault == "sh ended with status 1 at `boardsize 9`; log tail: no room"
    assert second == Reply(point("A1"))


def test_a_hanging_engine_and_its_child_end_with_the_game(opened, tmp_path):
    player = opened("deaf", at=1, log=tmp_path / "log")
    player.begin([1])
    make_move(player, 1)
    pids = pids_of(tmp_path / "log.pids")
    player.end(1)
    assert all_end(pids)


def test_a_player_can_be_closed_by_several_threads_at_once(opened):
    for _ in range(5):
        player = opened()
        player.begin(range(4))
        with ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(player.close) for _ in range(4)]:
                each.result()


def test_engines_end_when_the_player_is_killed(tmp_path):
    program = f"""
import time
from tests.players.test_gtp import RULES, command, make_move
from zero.players.gtp import gtp_program
from pathlib import Path
player = gtp_program(command("deaf", 1, Path({str(tmp_path / "log")!r})), RULES)
player.begin([1])
make_move(player, 1)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ENGINE.parents[3]) as owner:
        pids = pids_of(tmp_path / "log.pids")
        assert len(alive(pids)) == 2
        owner.kill()
    assert all_end(pids)


def pids_of(path: Path) -> list[int]:
    """Process ids that a hanging engine reports; waits for them."""
    deadline = time.monotonic() + LONG_SECONDS
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [int(word) for word in path.read_text().split()]


def all_end(pids: list[int]) -> bool:
    """True if all processes end soon. A killed process that is not a child of this one needs a moment."""
    deadline = time.monotonic() + LONG_SECONDS
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pids)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_end_of_the_diagnostics_is_kept():
    with GtpEngine(command("long diagnostics", at=1)) as engine:
        assert engine.request("genmove b") == "a1"
        assert engine.diagnostics.endswith("thinking \nthe best is A1\n")
        assert len(engine.diagnostics) == MAX_DIAGNOSTICS_BYTES
        engine.request("name")
        assert engine.diagnostics == ""


def test_an_engine_accepts_requests_after_a_failure():
    with GtpEngine(command("error", at=1)) as engine:
        with pytest.raises(EngineFailureError, match="I would rather not"):
            engine.request("genmove b")
        assert engine.request("genmove b") == "B1"


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        (["no-such-engine"], "cannot find the program 'no-such-engine'; install it, or give its path"),
        ([], "cannot find the program ''"),
        (["false"], "`false` does not speak GTP: false ended with status 1 at .*; give the command line of an engine"),
        (["cat"], "`cat` does not speak GTP: cat did not answer `protocol_version` within 6 s; output: '1 proto"),
    ],
)
def test_a_program_that_is_not_an_engine_is_rejected(command_line, message, monkeypatch):
    monkeypatch.setattr("zero.players.gtp.ANSWER_SECONDS", SHORT_SECONDS)
    with pytest.raises(OpponentError, match=message):
        gtp_program(command_line, RULES)


def test_a_file_that_cannot_be_executed_is_rejected(tmp_path):
    path = tmp_path / "engine"
    path.write_bytes(b"\x7fELF neither")
    path.chmod(0o755)
    with pytest.raises(OpponentError, match=r"ended with status 127 .*; log tail: cannot start .*/engine: "):
        gtp_program([str(path)], RULES)


@pytest.mark.parametrize("rules", [gomoku_rules(8, 8, 5), go_rules(5, 7)], ids=["gomoku", "5x7"])
def test_another_game_is_rejected(rules):
    with pytest.raises(OpponentError, match="GTP engines play Go on square boards only"):
        gtp_program(command(), rules)


def test_the_player_has_the_name_of_the_engine(opened):
    player = opened().id
    assert (player.name, player.kind, player.settings["engine"]) == ("Faulty 1.0", "gtp", "Faulty 1.0")
    assert str(ENGINE) in str(player.settings["command"])


def test_the_identity_contains_the_digests_of_the_files(opened, tmp_path):
    weights, digests = tmp_path / "weights", []
    for content in ("one", "two", "one"):
        weights.write_text(content)
        digests.append(file_digests([*command(), f"--net={weights}", str(tmp_path), "x" * 5000])["files"])
        assert sha256_file(weights) in str(file_digests(["zero", "gtp", f"{weights},simulations=10"])["files"])
    assert digests[0] == digests[2] != digests[1]
    named = [each.split(" ", 1) for each in str(digests[0]).split(", ")]
    wanted = [sys.executable, str(ENGINE), str(weights)]
    assert named == [[sha256_file(Path(path)), path] for path in wanted]
    assert str(opened().id.settings["files"]) in str(digests[0])
    program, path = str(file_digests(["sh", "-c", "cat"])["files"]).split(" ")
    assert (program, path) == (sha256_file(Path(shutil.which("sh") or "")), "sh")


def test_seeds_differ_by_game_and_fit_a_c_int():
    seeds = {game_seed(seed, game) for seed in range(10) for game in range(100)}
    assert len(seeds) == 1000 and min(seeds) > 0 and max(seeds) < 2**31
    assert game_seed(3, 7) == game_seed(3, 7)


def test_the_seed_of_the_game_is_in_the_command_line(tmp_path):
    log = tmp_path / "seed-{seed}"
    player = gtp_program(command(log=log), RULES, seed=5)
    player.begin([1, 2])
    player.close()
    wanted = {f"seed-{game_seed(5, game)}" for game in (0, 1, 2)}  # 0: the trial start
    assert {path.name for path in tmp_path.iterdir()} == wanted

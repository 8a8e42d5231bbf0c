"""Engines that speak GTP and fail in every way, each a process of its own: what that does to their games."""

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
from zero.players.base import RESIGN, Reply
from zero.players.gtp import files_of, gtp_opponent
from zero.players.gtp_player import GtpPlayer, game_seed
from zero.players.gtp_process import MAX_DIAGNOSTICS_BYTES, EngineError, GtpEngine, RefusedError
from zero.storage.files import sha256_file

ENGINE = Path(__file__).parent / "engines" / "engine.py"
RULES = go_rules(9, 9, 7.5)
PATIENCE, IMPATIENCE = 60.0, 6.0
"""Seconds for an engine that will answer, however busy the machine, and for one that will not."""
AT = 2
"""The move at which an engine fails."""

Opener = Callable[..., GtpPlayer]


def command(fault: str = "none", at: int = AT, log: Path | None = None) -> list[str]:
    return [sys.executable, "-I", "-S", str(ENGINE), fault, str(at), *([str(log)] if log else [])]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Makes players of the test's engine, which are closed at the end; then no process of theirs is left."""
    before = set(psutil.Process().children(recursive=True))
    players: list[GtpPlayer] = []

    def make(fault: str = "none", seconds: float = PATIENCE, at: int = AT, log: Path | None = None) -> GtpPlayer:
        players.append(gtp_opponent(command(fault, at, log), RULES, move_seconds=seconds, num_processes=2))
        return players[-1]

    yield make
    for player in players:
        player.close()
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert not left


def point(name: str) -> int:
    return name_to_action(RULES, name)


def make_move(player: GtpPlayer, game: int) -> Reply:
    (reply,) = player.choose([game])
    if not reply.fault:
        player.play(game, reply.action)
    return reply


def at_fault(player: GtpPlayer) -> Reply:
    """What the engine of game 1 replies at its second move; game 2 goes on beside it and game 3 after it."""
    player.begin([1, 2])
    assert player.choose([1, 2]) == [Reply(point("A1")), Reply(point("A1"))]
    for game in (1, 2):
        player.play(game, point("A1"))
    player.play(1, point("J9"))
    (reply,) = player.choose([1])
    if reply.fault:
        assert player.choose([1]) == [reply], "a fault is for good"
    player.end(1)
    player.play(2, point("B1"))
    assert make_move(player, 2) == Reply(point("C1"))
    player.begin([3])
    assert make_move(player, 3) == Reply(point("A1"))
    return reply


def test_where_this_machine_has_no_room_nobody_has_forfeited(opened):
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


def test_who_asks_again_while_the_engine_thinks_waits_for_that_answer(opened, tmp_path):
    player = opened(log=tmp_path / "log")
    player.begin([1])
    with ThreadPoolExecutor(2) as threads:
        replies = [each.result() for each in [threads.submit(player.choose, [1]) for _ in range(2)]]
    assert replies == [[Reply(point("A1"))]] * 2
    assert (tmp_path / "log").read_text().count("genmove") == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("die", r"ended with status 3 at `genmove black`; its last words: the board is on fire"),
        ("kill", rf"was killed by signal {signal.SIGKILL:d} at `genmove black`"),
        ("error", r"refused `genmove black`: I would rather not"),
        ("no point", r"'Z99' is not a point of a 9x9 board; points are A1 to J9"),
        ("empty", r"'' is not a point"),
        ("noise in the answer", r"is not a point"),
        ("flood", r"wrote more than 1,048,576 bytes at `genmove black`"),
        ("flood without a line", r"wrote more than 1,048,576 bytes"),
        ("endless answer", r"wrote more than 1,048,576 bytes"),
        ("wrong number", r"answered `genmove black` with '=7 B1', which lacks its number 6"),
        ("no number", r"answered `genmove black` with '= B1', which lacks its number 6"),
        ("closed output", r"closed its output at `genmove black`"),
    ],
)
def test_a_fault_forfeits_one_game_with_its_reason(opened, fault, reason):
    reply = at_fault(opened(fault))
    assert reply.action == RESIGN
    assert re.search(reason, reply.fault), reply.fault


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("hang", "nothing"),
        ("half a line", "only '=6 D'"),
        ("half an answer", "only '=6 B1'"),
        ("noise", "only "),
    ],
)
def test_an_engine_that_says_no_more_is_waited_for_so_long(opened, fault, said):
    started = time.monotonic()
    reply = at_fault(opened(fault, IMPATIENCE))
    assert f"did not answer `genmove black` within 6 s; it said {said}" in reply.fault
    assert time.monotonic() - started >= IMPATIENCE


def test_an_answer_too_many_is_seen_at_the_next_question(opened):
    player = opened("twice", at=1)
    player.begin([1])
    assert make_move(player, 1) == Reply(point("A1"))
    player.play(1, point("J9"))
    assert "answered `play white J9` with '=4 A1', which lacks its number 5" in make_move(player, 1).fault


def test_what_is_said_beside_the_answer_does_not_matter(opened):
    assert at_fault(opened("much said aside")) == Reply(point("B1"))


def test_resignation_is_no_fault(opened):
    assert at_fault(opened("resign")) == Reply(RESIGN)


def test_an_engine_is_told_the_moves_that_it_did_not_make(opened, tmp_path):
    log = tmp_path / "log"
    player = opened(log=log)
    log.unlink()  # of the trial start
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


def test_asked_twice_it_answers_once(opened, tmp_path):
    log = tmp_path / "log"
    player = opened(log=log)
    player.begin([1])
    assert player.choose([1]) == player.choose([1])
    assert log.read_text().count("genmove") == 1


def test_a_move_other_than_its_answer_is_played_from_the_start(opened, tmp_path):
    log = tmp_path / "log"
    player = opened(log=log)
    player.begin([1])
    player.choose([1])
    player.play(1, point("E5"))
    player.play(1, point("D4"))
    assert make_move(player, 1) == Reply(point("A1"))
    told = [line.split(maxsplit=1)[-1].strip() for line in log.read_text().splitlines()]
    assert told[-5:] == ["genmove black", "clear_board", "play black E5", "play white D4", "genmove black"]


def test_an_engine_that_dies_as_it_is_set_up_forfeits_its_game(opened, tmp_path):
    switch = tmp_path / "gone"
    script = f'[ -e {switch} ] && {{ echo "no room" >&2; exit 1; }}; exec "$@"'
    player = gtp_opponent(["sh", "-c", script, "sh", *command()], RULES)
    switch.touch()
    player.begin([1])
    switch.unlink()
    player.begin([2])
    first, second = player.choose([1, 2])
    player.close()
    assert first.fault == "sh ended with status 1 at `boardsize 9`; its last words: no room"
    assert second == Reply(point("A1"))


def test_a_deaf_engine_and_its_child_end_with_the_game(opened, tmp_path):
    player = opened("deaf", at=1, log=tmp_path / "log")
    player.begin([1])
    make_move(player, 1)
    pids = pids_of(tmp_path / "log.pids")
    player.end(1)
    assert all_end(pids)


def test_engines_end_when_the_player_is_killed(tmp_path):
    program = f"""
import time
from tests.players.test_gtp import RULES, command, make_move
from zero.players.gtp import gtp_opponent
from pathlib import Path
player = gtp_opponent(command("deaf", 1, Path({str(tmp_path / "log")!r})), RULES)
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
    """The processes that a deaf engine tells of, once it has."""
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [int(word) for word in path.read_text().split()]


def all_end(pids: list[int]) -> bool:
    """Whether no process is left soon: a killed one that is not our child is gone a moment later."""
    deadline = time.monotonic() + PATIENCE
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


def test_diagnostics_are_kept_to_their_end():
    with GtpEngine(command("much said aside", at=1)) as engine:
        assert engine.ask("genmove b") == "a1"
        assert engine.diagnostics.endswith("thinking \nthe best is A1\n")
        assert len(engine.diagnostics) == MAX_DIAGNOSTICS_BYTES
        engine.ask("name")
        assert engine.diagnostics == ""


def test_a_refusal_is_no_end():
    with GtpEngine(command("error", at=1)) as engine:
        with pytest.raises(RefusedError, match="I would rather not"):
            engine.ask("genmove b")
        assert engine.ask("genmove b") == "B1"


def test_after_a_failure_there_is_no_more():
    with GtpEngine(command("die", at=1)) as engine:
        for _ in range(2):
            with pytest.raises(EngineError):
                engine.ask("genmove b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-engine"], "cannot find the program 'no-such-engine'; install it, or give its path"),
        ([], "cannot find the program ''"),
        (["false"], "`false` does not speak GTP: false ended with status 1 at .*; give the command line of an engine"),
        (["cat"], "`cat` does not speak GTP: cat did not answer `protocol_version` within 6 s; it said only '1 proto"),
    ],
)
def test_a_program_that_is_no_engine_is_refused(words, message):
    with pytest.raises(OpponentError, match=message):
        gtp_opponent(words, RULES, move_seconds=IMPATIENCE)


def test_a_file_that_cannot_be_run_is_refused(tmp_path):
    path = tmp_path / "engine"
    path.write_bytes(b"\x7fELF neither")
    path.chmod(0o755)
    with pytest.raises(OpponentError, match=r"ended with status 127 .*; its last words: cannot start .*/engine: "):
        gtp_opponent([str(path)], RULES)


@pytest.mark.parametrize("rules", [gomoku_rules(8, 8, 5), go_rules(5, 7)], ids=["gomoku", "5x7"])
def test_another_game_is_refused(rules):
    with pytest.raises(OpponentError, match="GTP engines play Go on square boards"):
        gtp_opponent(command(), rules)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(seconds):
    with pytest.raises(OpponentError, match=r"move_seconds = .* is out of range"):
        gtp_opponent(command(), RULES, move_seconds=seconds)


def test_the_player_is_named_by_the_engine(opened):
    player = opened().player
    assert (player.name, player.kind, player.settings["engine"]) == ("Faulty 1.0", "gtp", "Faulty 1.0")
    assert str(ENGINE) in str(player.settings["command"])


def test_the_player_is_known_by_its_files(opened, tmp_path):
    weights, digests = tmp_path / "weights", []
    for content in ("one", "two", "one"):
        weights.write_text(content)
        digests.append(files_of([*command(), f"--net={weights}", str(tmp_path), "x" * 5000])["files"])
    assert digests[0] == digests[2] != digests[1]
    named = [each.split(" ", 1) for each in str(digests[0]).split(", ")]
    wanted = [sys.executable, str(ENGINE), str(weights)]
    assert named == [[sha256_file(Path(path)), path] for path in wanted]
    assert str(opened().player.settings["files"]) in str(digests[0])
    program, path = str(files_of(["sh", "-c", "cat"])["files"]).split(" ")
    assert (program, path) == (sha256_file(Path(shutil.which("sh") or "")), "sh")


def test_seeds_differ_by_game_and_fit_a_c_int():
    seeds = {game_seed(seed, game) for seed in range(10) for game in range(100)}
    assert len(seeds) == 1000 and min(seeds) > 0 and max(seeds) < 2**31
    assert game_seed(3, 7) == game_seed(3, 7)


def test_the_seed_of_the_game_is_in_the_command_line(tmp_path):
    log = tmp_path / "seed-{seed}"
    player = gtp_opponent(command(log=log), RULES, seed=5)
    player.begin([1, 2])
    player.close()
    wanted = {f"seed-{game_seed(5, game)}" for game in (0, 1, 2)}  # 0: the trial start
    assert {path.name for path in tmp_path.iterdir()} == wanted

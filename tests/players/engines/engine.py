"""A GTP engine that plays the first empty point, with a chosen fault: `engine.py FAULT MOVE [LOG]`.

FAULT happens at its MOVE-th `genmove`; if MOVE is more than 1, only with a stone on J9. LOG receives its input.
"""

import os
import signal
import subprocess
import sys
import time

LETTERS = "ABCDEFGHJKLMNOPQRST"


class Engine:
    def __init__(self, fault: str, at: int, log: str) -> None:
        self.fault, self.at, self.log = fault, at, log
        self.size, self.num_moves = 19, 0
        self.taken: set[str] = set()

    def answer(self, words: list[str]) -> str:
        match words:
            case ["name"]:
                return "Faulty"
            case ["version"]:
                return "1.0"
            case ["protocol_version"]:
                return "2"
            case ["boardsize", size]:
                self.size = int(size)
            case ["clear_board"]:
                self.taken = set()
            case ["play", _, point]:
                self.taken.add(point)
            case ["genmove", _]:
                self.num_moves += 1
                points = [f"{letter}{row + 1}" for row in range(self.size) for letter in LETTERS[: self.size]]
                point = next(point for point in points if point not in self.taken)
                self.taken.add(point)
                return point
        return ""

    def serve(self) -> None:
        if self.fault == "banner":
            say("==== Faulty 1.0 ====\n??? loading\n=> ready\n")
        for line in sys.stdin:
            if self.log:
                with open(self.log, "a") as log:
                    log.write(line)
            number, *words = line.split()
            if words == ["quit"] or number == "quit":
                return
            answer = self.answer(words)
            if words[0] == "genmove" and self.num_moves == self.at and (self.at == 1 or "J9" in self.taken):
                self.fail(number, answer)
            else:
                say(f"={number} {answer}\n\n")

    def fail(self, number: str, answer: str) -> None:
        match self.fault:
            case "hang":
                time.sleep(1000)
            case "die":
                sys.stderr.write("thinking\nthe board is on fire\n")
                sys.stderr.flush()
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "error":
                say(f"?{number} I would rather not\n\n")
            case "no point":
                say(f"={number} Z99\n\n")
            case "half an answer":
                say(f"={number} {answer}\n")
                time.sleep(1000)
            case "noise in the answer":
                say(f"={number} ".encode() + bytes(range(128, 256)) + b"\n\n")
            case "flood":
                while True:
                    say("D4 " * 1000 + "\n")
            case "endless answer":
                say(f"={number} {answer}\n")
                while True:
                    say("and on\n")
            case "wrong number":
                say(f"={int(number) + 1} {answer}\n\n")
            case "twice":
                say(f"={number} {answer}\n\n" * 2)
            case "closed output":
                os.close(1)
                time.sleep(1000)
            case "long diagnostics":
                for _ in range(1000):
                    sys.stderr.write("thinking " * 1000 + "\n")
                sys.stderr.write(f"the best is {answer}\n")
                sys.stderr.flush()
                say(f"a banner\n\r\n={number} {answer.lower()}\r\n\r\n")
            case "resign":
                say(f"={number} resign\n\n")
            case "deaf":  # ignores the end of its input and signals, and has a child process
                for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(name, signal.SIG_IGN)
                child = subprocess.Popen(["sleep", "1000"])
                say(f"={number} {answer}\n\n")
                with open(f"{self.log}.pids", "w") as pids:
                    pids.write(f"{os.getpid()} {child.pid}\n")
                time.sleep(1000)
            case other:
                raise AssertionError(other)


def say(text: str | bytes) -> None:
    sys.stdout.buffer.write(text.encode() if isinstance(text, str) else text)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    Engine(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "").serve()

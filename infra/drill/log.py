"""The log of a drill: one line a kill, written when the generation it hit was compared; a summary made of the lines.

A drill that was itself interrupted goes on from its log: lines of whole generations stay, that in hand is done again.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

EQUAL = "equal"


class Line(NamedTuple):
    """A kill, or something else that was done to a run, and what came of it."""

    part: str
    """`loop`, `new`, `servers` or `disk`."""
    run: str
    """Which run it hit: round and generation."""
    moment: str
    process: str
    victim: str
    step: str
    resumed: str
    """The first command that went on."""
    result: str
    """`equal`, or how the finished generation differs from the uninterrupted one."""
    seconds: float
    """From this kill to the next, or to the end of the generation."""


class Log:
    """A drill's log file, JSON lines: the first one says which code was drilled."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        """Opens the log, or begins it.

        Raises:
          ValueError: it is of other code, or on another machine.
        """
        self.path = path
        self.head = head
        self.lines: list[Line] = []
        self.done: dict[str, str] = {}
        """Finished runs -> `equal` or what differs."""
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"drill": head}, sort_keys=True) + "\n")
            return
        records = [json.loads(text) for text in path.read_text().splitlines() if text.endswith("}")]
        if records[0]["drill"] != head:
            raise ValueError(f"{path} is the log of another drill ({records[0]['drill']}); move it away, or set --out")
        for record in records[1:]:
            if "finished" in record:
                self.done[record["finished"]] = record["result"]
        finished = [Line(**record) for record in records[1:] if "finished" not in record]
        self.lines = [line for line in finished if line.run in self.done]

    def add(self, run: str, result: str, lines: list[Line]) -> None:
        """Writes the lines of a finished run."""
        with self.path.open("a") as file:
            for line in lines:
                file.write(json.dumps(line._asdict(), sort_keys=True) + "\n")
            file.write(json.dumps({"finished": run, "result": result}, sort_keys=True) + "\n")
        self.lines += lines
        self.done[run] = result


def num_kills(log: Log) -> int:
    """Kills so far; a full disk is none."""
    return sum(line.part != "disk" for line in log.lines)


def summary(log: Log, named: int) -> dict[str, Any]:
    """Figures of the drill. `named`: moments that have a name."""
    kills = [line for line in log.lines if line.part != "disk"]
    different = [line for line in log.lines if line.result != EQUAL]
    at_random = [line for line in kills if line.moment.startswith("at random")]
    seconds = sum(line.seconds for line in kills)
    return {
        **log.head,
        "kills": len(kills),
        "kills_by_part": dict(sorted(Counter(line.part for line in kills).items())),
        "kills_by_victim": dict(sorted(Counter(line.victim for line in kills).items())),
        "kills_at_random": len(at_random),
        "named_moments": named,
        "named_moments_used": len({line.moment for line in kills if not line.moment.startswith("at random")}),
        "disks_full_or_read_only": sum(line.part == "disk" for line in log.lines),
        "runs": len(log.done),
        "runs_that_differ": sorted(f"{run}: {result}" for run, result in log.done.items() if result != EQUAL),
        "kills_with_another_result": len(different),
        "seconds_a_kill": round(seconds / max(1, len(kills)), 1),
    }


def summary_text(figures: dict[str, Any], lines: list[Line]) -> str:
    """The summary and every line, for a person."""
    width = max((len(line.moment) for line in lines), default=0)
    head = [f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in figures.items()]
    rows = [
        f"{line.part:7} {line.run:22} {line.moment:{width}}  {line.victim:6} of `{line.process or line.step}`; "
        f"resumed by {line.resumed or '-'}; {line.result}"
        for line in lines
    ]
    return "\n".join([*head, "", *rows]) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)

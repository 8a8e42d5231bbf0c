"""What a user can cause. The message names the value and the remedy; the command line prints it as one line.

ZeroError
|- ParamsError     params.yaml or a preset: unknown, misspelt, out of range, or not supported by this machine
|  |- DivergedError  a training whose loss is no number any more
|- StorageError    a file or shard: missing, altered, half there
|- LineageError    a lineage or its workspace: unknown, dirty, diverged, written by somebody else
|- WorkerError     a process that plays a shard: died, timed out, answered nonsense
|- ServerError     the Prefect or MLflow server: not there, or a port in use
|- MoveError       a move that the rules forbid, or a position that has none to ask for
|- OpponentError   a program that plays against ours: not there, no GTP engine, or not able to play this game
|- MismatchError   a shard that was played twice gave two results
"""

import difflib


class ZeroError(Exception):
    """Base of all errors that a user can cause."""


class ParamsError(ZeroError):
    """A parameter is unknown, misspelt, out of range, or not supported by this machine."""


class DivergedError(ParamsError):
    """The loss of a training is no number any more; it would be so on any machine."""


class StorageError(ZeroError):
    """A file or shard is missing, altered or cannot be written."""


class LineageError(ZeroError):
    """A lineage or its workspace cannot be used as asked."""


class WorkerError(ZeroError):
    """A process that plays a shard died or gave no usable answer."""


class ServerError(ZeroError):
    """A server this machine needs does not answer."""


class MoveError(ZeroError):
    """A move is against the rules, or there is none to play or to take back."""


class OpponentError(ZeroError):
    """A program that plays against ours is missing, is no GTP engine, or cannot play this game."""


class MismatchError(ZeroError):
    """A shard that was played twice gave two results."""


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint for a message, where something known looks like `name`; else nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

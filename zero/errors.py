"""Errors that a user can cause. The message has the value, the cause and the remedy, and is printed as one line.

ZeroError
|- ParamsError     params.yaml or a preset: unknown, misspelt, out of range, or not supported by this machine
|  |- DivergedError  training diverged: the loss is NaN or infinite
|- StorageError    a file or shard: missing, corrupt or not writable
|- LineageError    a lineage or its workspace: unknown, dirty, diverged, locked by another process
|- WorkerError     a process that plays a shard or trains: died, gave an invalid reply
|- ServerError     the Prefect or MLflow server: not reachable, or its port is in use
|- MoveError       an illegal move, or no move to play or take back
|- OpponentError   an opponent program: missing, not a GTP engine, or unable to play this game
|- MismatchError   re-execution of a shard gave another result
"""

import difflib


class ZeroError(Exception):
    """Base class of all errors that a user can cause."""


class ParamsError(ZeroError):
    """A parameter is unknown, misspelt, out of range, or not supported by this machine."""


class DivergedError(ParamsError):
    """Training diverged: the loss is NaN or infinite, and would be so on any machine."""


class StorageError(ZeroError):
    """A file or shard is missing, corrupt or cannot be written."""


class LineageError(ZeroError):
    """A lineage or its workspace cannot be used as requested."""


class WorkerError(ZeroError):
    """A process that plays a shard or trains died or gave an invalid reply."""


class ServerError(ZeroError):
    """A server that this machine needs does not answer."""


class MoveError(ZeroError):
    """A move is illegal, or there is no move to play or take back."""


class OpponentError(ZeroError):
    """An opponent program is missing, is not a GTP engine, or cannot play this game."""


class MismatchError(ZeroError):
    """The re-execution of a shard gave another result."""


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint with the most similar known name, for a message; empty if no name is similar."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

"""Runs git and DVC from the command line, without a configured identity, network or terminal."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from configobj import ConfigObj, ConfigObjError

from zero.errors import LineageError
from zero.storage.files import write_atomic
from zero.storage.layout import DVC_CACHE_DIR

IDENTITY = {
    "GIT_AUTHOR_NAME": "zero",
    "GIT_AUTHOR_EMAIL": "zero@localhost",
    "GIT_COMMITTER_NAME": "zero",
    "GIT_COMMITTER_EMAIL": "zero@localhost",
}
QUIET = {"GIT_TERMINAL_PROMPT": "0", "DVC_NO_ANALYTICS": "1", "DO_NOT_TRACK": "true"}
GIT_SETTINGS = {
    "commit.gpgsign": "false",
    "tag.gpgsign": "false",
    "push.gpgsign": "false",
    "core.hooksPath": "/dev/null",
    "core.autocrlf": "false",
    "core.attributesFile": "/dev/null",
    "clone.defaultRemoteName": "origin",
    "advice.detachedHead": "false",
}
"""Override those of the user: a signature, hook or filter could stop a command or change what it records."""
WITHOUT_USERS_IGNORES = ("-c", "core.excludesFile=/dev/null")
"""Options of git for adding files: a pattern such as `*.csv` in the user's own list would leave out recorded files."""
PUSH_FAILED = "error: failed to push some refs"
"""The last line of git's output after a failed push; the reason is in an earlier line."""
PUSH_REJECTED = "! [remote rejected]"
"""Start of the line with the reason why a repository did not accept a push."""
OUTER_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""Variables that a git hook sets for its own repository. They would redirect our commands to that repository."""


def environment() -> dict[str, str]:
    """Environment of a child process: this Python first on the path, no telemetry, an identity for commits."""
    # DVC runs the stages with the `python` of the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    identity = {name: os.environ.get(name, value) for name, value in IDENTITY.items()}
    outer = {name: value for name, value in os.environ.items() if name not in OUTER_GIT}
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    number = int(given) if given.isdecimal() else 0  # settings of the user, often `safe.directory`
    settings = {"GIT_CONFIG_COUNT": str(number + len(GIT_SETTINGS))}
    for index, (name, value) in enumerate(GIT_SETTINGS.items(), number):
        settings |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    # `refs/replace` could show other content under the names of recorded objects.
    return {**outer, **QUIET, **settings, **identity, "GIT_NO_REPLACE_OBJECTS": "1", "PATH": path}


def git(folder: Path, *arguments: str, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Output of a git command run in `folder`, with these environment variables in addition.

    Raises:
      LineageError: the command failed; the message has the end of its log.
    """
    return _run(["git", *arguments], folder, {"LC_ALL": "C.UTF-8", **env})  # its messages in English


def dvc(folder: Path, *arguments: str) -> str:
    """Output of a DVC command run in `folder`.

    Raises:
      LineageError: the command failed; the message has the end of its log.
    """
    return _run([sys.executable, "-m", "dvc", *arguments], folder)


def _run(command: list[str], folder: Path, env: Mapping[str, str] = MappingProxyType({})) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment(), **env},
            capture_output=True,
            text=True,
            errors="replace",  # damaged content of a file becomes an error where it is parsed
            check=False,
        )
    except (FileNotFoundError, NotADirectoryError):
        raise LineageError(
            f"cannot run `{command[0]}` in {folder}; install it, or check that the folder is there"
        ) from None
    if done.returncode:
        reason = _log_tail((done.stderr or done.stdout).strip().splitlines())
        name = "dvc" if "dvc" in command[:3] else command[0]
        shown = " ".join(command[3:] if name == "dvc" else command[1:])
        raise LineageError(f"`{name} {shown}` failed in {folder}: {reason}")
    return done.stdout


def _log_tail(lines: Sequence[str]) -> str:
    """The line of a command's output that most likely has the reason of its failure."""
    written = [line.strip() for line in lines if line.strip()]
    errors = [line for line in written if line.lower().removeprefix("remote: ").startswith(("error", "fatal"))]
    rejected = [line for line in written if line.startswith(PUSH_REJECTED)]
    reasons = [line for line in errors if not line.startswith(PUSH_FAILED)]
    return (rejected or reasons or errors or written or ["(no output)"])[-1]


REMOTE = "record"
"""Name of DVC's remote."""


def dvc_cache_dir(clone: Path) -> Path | None:
    """DVC's cache, as `configure_dvc` has set it for a clone; None if it has not.

    Raises:
      LineageError: the settings of the clone cannot be read.
    """
    config = _read(clone / ".dvc/config.local")
    path = config.get("cache", {}).get("dir")
    return Path(path) if path else None


def configure_dvc(clone: Path, home: Path, moved_from: Path | None = None) -> None:
    """Sets the shared cache of a clone, and makes that cache its remote if it has no remote or a missing one.

    The path of the remote is committed. If the project was moved or copied from `moved_from`, a local setting
    overrides it.

    Raises:
      LineageError: the settings of the clone cannot be read.
      StorageError: they cannot be written.
    """
    cache = str(home / DVC_CACHE_DIR)
    replaced = str(moved_from / DVC_CACHE_DIR) if moved_from else ""
    # Written with the library with which DVC writes these files, because each start of DVC takes about a second.
    config, local = (_read(clone / ".dvc" / name) for name in ("config", "config.local"))
    remote = f'remote "{REMOTE}"'
    local["cache"] = {"dir": cache}
    if not any(section.startswith("remote ") for section in config.sections):
        config.setdefault("core", {})["remote"] = REMOTE
        config[remote] = {"url": cache}
        _write(config)
    elif (url := config.get(remote, {}).get("url", "")) == cache:
        local.pop(remote, None)  # of another place in which the project was
    elif url.startswith("/") and (url == replaced or not Path(url).exists()):
        local[remote] = {"url": cache}
    _write(local)


def _read(file: Path) -> ConfigObj:
    """Settings of DVC; empty without the file."""
    try:
        # Without interpolation, which would fail on a path with a `%`.
        config = ConfigObj(str(file), interpolation=False, indent_type="    ", encoding="utf-8")
        if not isinstance(config.get("cache", {}), dict):
            raise ConfigObjError("cache is not a section")
        return config
    except (ConfigObjError, UnicodeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise LineageError(f"{file} has no valid settings of DVC: {reason}; correct it") from None


def _write(config: ConfigObj) -> None:
    """Writes settings atomically. Without its cache, a workspace would look for its data in another folder."""
    path, content = Path(config.filename), io.BytesIO()
    config.write(content)
    draft = path.parent / "tmp" / path.name  # git ignores this folder
    write_atomic(draft, content.getvalue(), path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(draft, path)

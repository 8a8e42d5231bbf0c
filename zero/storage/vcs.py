"""Git and DVC by their command lines, with no need of a configured identity, a network or a terminal."""

import os
import subprocess
import sys
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

from zero.config.settings import STATE_FOLDER
from zero.errors import LineageError

IDENTITY = {
    "GIT_AUTHOR_NAME": "zero",
    "GIT_AUTHOR_EMAIL": "zero@localhost",
    "GIT_COMMITTER_NAME": "zero",
    "GIT_COMMITTER_EMAIL": "zero@localhost",
}
QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "4",
    "GIT_CONFIG_KEY_0": "commit.gpgsign",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "advice.detachedHead",
    "GIT_CONFIG_VALUE_1": "false",
    "GIT_CONFIG_KEY_2": "tag.gpgsign",
    "GIT_CONFIG_VALUE_2": "false",
    "GIT_CONFIG_KEY_3": "core.hooksPath",
    "GIT_CONFIG_VALUE_3": "/dev/null",
    "DVC_NO_ANALYTICS": "1",
    "DO_NOT_TRACK": "true",
}


PUSH_FAILED = "error: failed to push some refs"
"""What git says last of any push that failed; the reason is before it."""
OUTER_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""What a git hook sets for the repository it runs in; here it would divert commands from the folder they name."""


def environment() -> dict[str, str]:
    """Environment of a child: this Python's programs first on the path, telemetry off, an identity for commits."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    identity = {name: os.environ.get(name, value) for name, value in IDENTITY.items()}
    outer = {name: value for name, value in os.environ.items() if name not in OUTER_GIT}
    return {**outer, **QUIET, **identity, "PATH": path}


def git(folder: Path, *arguments: str) -> str:
    """Output of a git command run in `folder`.

    Raises:
      LineageError: it failed; with its last words.
    """
    return _run(["git", *arguments], folder)


def dvc(folder: Path, *arguments: str) -> str:
    """Output of a DVC command run in `folder`.

    Raises:
      LineageError: it failed; with its last words.
    """
    return _run([sys.executable, "-m", "dvc", *arguments], folder)


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LineageError(
            f"cannot run `{command[0]}` in {folder}; install it, or check that the folder is there"
        ) from None
    if done.returncode:
        words = _last_words((done.stderr or done.stdout).strip().splitlines())
        name = "dvc" if "dvc" in command[:3] else command[0]
        shown = " ".join(command[3:] if name == "dvc" else command[1:])
        raise LineageError(f"`{name} {shown}` failed in {folder}: {words}")
    return done.stdout


def _last_words(lines: Sequence[str]) -> str:
    told = [line.strip() for line in lines if line.strip()]
    errors = [line for line in told if line.lower().removeprefix("remote: ").startswith(("error", "fatal"))]
    reasons = [line for line in errors if not line.startswith(PUSH_FAILED)]
    return (reasons or errors or told or ["it said nothing"])[-1]


REMOTE = "record"
"""The name of DVC's remote."""


REMOTE_SECTION = f"'remote \"{REMOTE}\"'"
"""Its section in DVC's configuration."""


def configure_dvc(clone: Path, home: Path) -> None:
    """Gives a clone the shared cache, and names that cache as its remote where it has none, or only one that is gone.

    The path of the remote is committed. Where the project was moved since, a local setting overrules it.
    """
    cache = str(home / STATE_FOLDER / "dvc-cache")
    dvc(clone, "config", "--local", "cache.dir", cache)
    config = ConfigParser(interpolation=None)  # DVC's own list of remotes is broken into lines of a screen
    config.read(clone / ".dvc/config")
    url = config.get(REMOTE_SECTION, "url", fallback="")
    if not any(section.startswith("'remote ") for section in config.sections()):
        dvc(clone, "remote", "add", "--quiet", "--default", REMOTE, cache)
    elif url.startswith("/") and not Path(url).exists():
        dvc(clone, "remote", "modify", "--quiet", "--local", REMOTE, "url", cache)

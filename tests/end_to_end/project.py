"""A project for a test: the present sources, committed in a new repository."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parents[2]
COPIED = (
    *("zero", "flows", "infra", ".dvc/config", ".dvcignore", ".gitignore", "constraints.txt", "dvc.yaml"),
    *("params.yaml", "prefect.yaml", "pyproject.toml"),
)
DYING = """
import os, sys
from zero.storage import vcs
run, (dead_at, *words) = vcs._run, sys.argv[1:]
def dying(command, *others):
    if dead_at in " ".join(map(str, command)):
        os._exit(9)
    return run(command, *others)
vcs._run = dying
sys.argv = ["zero", *words]
from zero.cli import main
main()
"""
"""Command line of a process that dies in place of the first git or DVC command with the given words."""
IN_TURN = """
import json, logging, os, sys, traceback
from zero.cli import main
folder = sys.argv[2]
for number, words in enumerate(json.loads(sys.argv[1])):
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT), fd)
    logging.root.handlers.clear()
    sys.argv = ["zero", *words]
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    with open(f"{folder}/{number}.status", "w") as file:
        file.write(str(status))
"""
"""Command line of a process that runs several `zero` commands and writes their output to files."""
HIDDEN = ("ZERO_STORE", "ZERO_HOME", "ZERO_WRITER", "ZERO_PROGRESS", "MLFLOW_TRACKING_URI", "PREFECT_API_URL")


def make_project(folder: Path) -> Path:
    """Copies the sources into `folder` and commits them."""
    for name in COPIED:
        source, target = SOURCE_DIR / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "project")
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Output of a git command."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    return run(["git", *identity, *arguments], folder).stdout


def zero(folder: Path, *arguments: str, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs `python -m zero` with the code in `folder`."""
    return run([sys.executable, "-m", "zero", *arguments], folder, check=check, **environment)


def zero_in_turn(
    folder: Path, *commands: Sequence[str], **environment: str
) -> "list[subprocess.CompletedProcess[str]]":
    """Runs `zero` commands with the code in `folder`, in one process, because imports take longer than they do."""
    with tempfile.TemporaryDirectory() as said:
        run([sys.executable, "-c", IN_TURN, json.dumps(commands), said], folder, check=True, **environment)

        def text(number: int, name: str) -> str:
            return Path(said, f"{number}.{name}").read_text()

        return [
            subprocess.CompletedProcess(command, int(text(n, "status")), text(n, "out"), text(n, "err"))
            for n, command in enumerate(commands)
        ]


def dvc(folder: Path, *arguments: str, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs DVC in `folder`, with this Python's programs first on the path."""
    return run([sys.executable, "-m", "dvc", *arguments], folder, check=check, **environment)


def environment_of(**changes: str) -> dict[str, str]:
    """Environment of a child process, without this machine's settings of the project."""
    base = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    path = f"{Path(sys.executable).parent}{os.pathsep}{base.get('PATH', '')}"
    return {**base, "PATH": path, "DVC_NO_ANALYTICS": "1", **changes}


def run(command: list[str], folder: Path, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command. If it must succeed and fails, the test failure shows its output."""
    done = subprocess.run(
        command, cwd=folder, env=environment_of(**environment), capture_output=True, text=True, check=False
    )
    if check:
        assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def killed(home: Path, dead_at: str, *words: str, **environment: str) -> None:
    """Runs a `zero` command that dies before the first git or DVC command with the words `dead_at`."""
    done = run([sys.executable, "-c", DYING, dead_at, *words], home, check=False, **environment)
    assert done.returncode == 9, done.stderr


def edit_params(text: str, **values: object) -> str:
    """A preset's text with values replaced, as `gating__threshold=0.0`."""
    import yaml

    tree = yaml.safe_load(text)
    for name, value in values.items():
        section, field = name.split("__")
        assert field in tree[section]
        tree[section][field] = value
    return json.dumps(tree)

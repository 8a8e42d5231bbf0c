"""The project that the drill kills: these sources in a repository of their own, and copies of it at one path.

Two runs give equal commit ids where the project's commit, its path (it is in DVC's configuration), the signing key and
the two dates of git are equal; so every copy lies at the same place, one after the other.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from infra.drill.moments import LINEAGE

SOURCE_DIR = Path(__file__).resolve().parents[2]
HOOK_DIR = Path(__file__).resolve().parent / "hook"
DATE = "2026-01-01T00:00:00+0000"
HIDDEN = ("ZERO_", "MLFLOW_", "PREFECT_", "GIT_", "DVC_")
"""Variables of the caller's shell with these beginnings are about other projects."""
LEFT_OUT = ("tests/", "benchmarks/", "docs/")
"""Sources that no command of the loop reads."""


class Place(NamedTuple):
    """The folder of a drill."""

    root: Path

    @property
    def home(self) -> Path:
        """Where each copy of the project is put."""
        return self.root / "project"

    @property
    def workspace(self) -> Path:
        """Workspace of its lineage."""
        return self.home / ".zero/workspaces" / LINEAGE

    def kept(self, name: str) -> Path:
        """A copy of the project that is set by: `empty`, `base`."""
        return self.root / "kept" / name

    @property
    def kept_commit(self) -> Path:
        """Commit of the project that was set by."""
        return self.root / "kept" / "commit"

    @property
    def used_dir(self) -> Path:
        """Where a moment leaves a file when it was used."""
        return self.root / "used"

    @property
    def dvc_site(self) -> Path:
        """What DVC knows of files it has hashed; beside the project as it usually is, and gone with each copy."""
        return self.root / "dvc-site"

    @property
    def plan(self) -> Path:
        """The moments at which processes are to be killed."""
        return self.root / "plan.json"

    @property
    def output(self) -> Path:
        """What the commands print."""
        return self.root / "output.txt"


def environment_of(place: Place, **changes: str) -> dict[str, str]:
    """Environment of every command of the drill: equal dates and identity, and nothing of the caller's settings."""
    scratch = place.root / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    base = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    identity = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()}
    return {
        **base,
        **identity,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{base.get('PATH', os.defpath)}",
        "ZERO_HOME": str(place.home),
        "DVC_NO_ANALYTICS": "1",
        "TMPDIR": str(scratch),  # what killed processes leave there goes with the drill
        "DVC_SITE_CACHE_DIR": str(place.dvc_site),
        "COLUMNS": "200",
        **changes,
    }


IDENTITY = {"NAME": "drill", "EMAIL": "drill@localhost", "DATE": DATE}


def run(place: Place, *command: str, folder: Path | None = None) -> str:
    """Output of a command that must succeed, and is not killed.

    Raises:
      RuntimeError: it failed; with its output.
    """
    done = subprocess.run(
        command, cwd=folder or place.home, env=environment_of(place), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} gave {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def zero(place: Place, *words: str) -> str:
    """Output of a command of `zero` in the project."""
    return run(place, sys.executable, "-m", "zero", *words)


def git(place: Place, *words: str, folder: Path | None = None) -> str:
    """Output of a git command in the project."""
    return run(place, "git", *words, folder=folder)


def make_project(place: Place, params: str) -> str:
    """Commits the sources as they are, with `params` as parameters, at the place; id of the commit."""
    shutil.rmtree(place.home, ignore_errors=True)
    shutil.rmtree(place.dvc_site, ignore_errors=True)
    place.home.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=SOURCE_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        source, target = SOURCE_DIR / name, place.home / name
        if source.is_file() and not name.startswith(LEFT_OUT):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (place.home / "params.yaml").write_text(params)
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "-m", "project")
    return git(place, "rev-parse", "HEAD").strip()


def keep(place: Place, name: str) -> None:
    """Sets a copy of the project by."""
    _copy(place.home, place.kept(name))


def put_back(place: Place, name: str) -> None:
    """Puts a copy that was set by in the project's place."""
    shutil.rmtree(place.dvc_site, ignore_errors=True)
    _copy(place.kept(name), place.home)


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--reflink=auto", str(source), str(target)], check=True)

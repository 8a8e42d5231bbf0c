"""The shell scripts and the Dockerfile, by the linters that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR

DOCKERFILE = SOURCE_DIR / "infra/images/Dockerfile"


def scripts() -> list[Path]:
    """Every file under infra/ and .ci/ that starts as a shell script."""
    files = [path for folder in ("infra", ".ci") for path in (SOURCE_DIR / folder).rglob("*") if path.is_file()]
    return sorted(path for path in files if path.read_bytes().startswith((b"#!/bin/sh", b"#!/usr/bin/env bash")))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE_DIR).as_posix()


def linter(name: str) -> str:
    """Path of a linter, beside this Python where its package is installed."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


each_script = pytest.mark.parametrize("path", scripts(), ids=name_of)


def test_the_scripts_are_found() -> None:
    found = {name_of(path) for path in scripts()}
    assert {"infra/backup", "infra/restore", "infra/secrets", "infra/setup", "infra/images/with-secrets"} <= found


@each_script
def test_a_script_can_be_run_and_stops_at_an_error(path: Path) -> None:
    assert path.stat().st_mode & 0o111 == 0o111
    assert "\nset -euo pipefail\n" in path.read_text()


@each_script
def test_bash_can_read_a_script(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@each_script
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run([linter("shellcheck"), str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run([linter("hadolint"), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

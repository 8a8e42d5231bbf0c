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


def linter(name: str) -> str:
    """Path of a linter, beside this Python where its package is installed."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def test_a_script_can_be_run_and_stops_at_an_error() -> None:
    paths = scripts()
    names = {path.relative_to(SOURCE_DIR).as_posix() for path in paths}
    assert {"infra/backup", "infra/restore", "infra/secrets", "infra/setup", "infra/images/with-secrets"} <= names
    for path in paths:
        assert path.stat().st_mode & 0o111 == 0o111, path
        assert "\nset -euo pipefail\n" in path.read_text(), path


@pytest.mark.parametrize(("name", "paths"), [("shellcheck", scripts()), ("hadolint", [DOCKERFILE])])
def test_a_linter_has_nothing_to_say(name: str, paths: list[Path]) -> None:
    done = subprocess.run([linter(name), *map(str, paths)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

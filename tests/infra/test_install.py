"""The pinned set of packages, and what a fresh installation says when it cannot begin."""

import re
import shutil
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.end_to_end.project import SOURCE_DIR, run

BASH = shutil.which("bash") or "/bin/bash"


CONSTRAINTS = ("constraints.txt", "infra/images/constraints-servers.txt")


def pins() -> dict[str, Version]:
    lines = [line for name in CONSTRAINTS for line in (SOURCE_DIR / name).read_text().splitlines()]
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def requirements() -> list[Requirement]:
    project = tomllib.loads((SOURCE_DIR / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in [*project["dependencies"], *project["optional-dependencies"]["test"]]]


def installed(wanted: list[Requirement]) -> dict[str, Version]:
    """Versions of what is wanted and of all that it wants here, by name."""
    found: dict[str, Version] = {}
    todo = [(requirement, "") for requirement in wanted]
    seen = set()
    while todo:
        requirement, extra = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(key)
        package = distribution(requirement.name)
        found[key[0]] = Version(Version(package.version).public)
        for line in package.requires or []:
            todo += [(Requirement(line), name) for name in ("", *requirement.extras)]
    return found


def test_every_package_that_is_needed_is_pinned_to_the_version_that_runs_and_is_in_its_range() -> None:
    pinned = pins()
    assert {name: version for name, version in installed(requirements()).items() if pinned.get(name) != version} == {}
    assert [str(r) for r in requirements() if pinned[canonicalize_name(r.name)] not in r.specifier] == []


def test_no_pin_names_a_machine_or_a_build() -> None:
    lines = [line for name in CONSTRAINTS for line in (SOURCE_DIR / name).read_text().splitlines()]
    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A folder with what the set-up reads."""
    for name in ("infra/setup", "pyproject.toml", *CONSTRAINTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE_DIR / name, tmp_path / name)
    return tmp_path


def test_an_interpreter_that_is_none_is_refused_with_the_remedy(fresh: Path) -> None:
    done = run([BASH, "infra/setup"], fresh, check=False, PYTHON="/no/such/python")
    assert done.returncode == 1
    assert done.stderr.startswith("error: PYTHON=/no/such/python does not run, is not Python 3.11 or 3.12")
    assert len(done.stderr.splitlines()) == 1 and not (fresh / ".venv").exists()


def test_another_argument_than_packages_is_refused(fresh: Path) -> None:
    done = run([BASH, "infra/setup", "package"], fresh, check=False)
    assert (done.returncode, done.stderr) == (1, "error: infra/setup package: the only argument is packages\n")


def test_an_incomplete_installation_is_replaced_and_a_failed_one_leaves_no_stamp(fresh: Path) -> None:
    (fresh / "pyproject.toml").write_text("this is no project file")
    (fresh / ".venv").mkdir()
    done = run([BASH, "infra/setup"], fresh, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("setting up: .venv is incomplete, or was made for another folder or interpreter;")
    assert "error: the installation failed, see .zero/logs/setup.log" in done.stderr
    assert not (fresh / ".venv/zero-stamp").exists()

"""The dependencies of a stage in dvc.yaml are complete: its parameters, and the sources that it runs."""

import ast
from pathlib import Path

import pytest
import yaml

import zero
from zero.config.params import STAGE_SECTIONS
from zero.stages.spec import stage_sources

PROJECT_DIR = Path(zero.__file__).parents[1]
DVC_STAGES = yaml.safe_load((PROJECT_DIR / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("stage", STAGE_SECTIONS)
def test_dvc_sees_the_parameters_that_a_stage_depends_on(stage):
    names = [name for name in DVC_STAGES[stage]["params"] if isinstance(name, str)]
    assert sorted(names) == sorted(STAGE_SECTIONS[stage])


def test_dvc_has_the_stages_that_have_parameters():
    assert set(DVC_STAGES) == set(STAGE_SECTIONS)
    for stage, entry in DVC_STAGES.items():
        assert entry["cmd"] == f"python -m zero {stage}"


@pytest.mark.parametrize("stage", STAGE_SECTIONS)
def test_the_sources_of_a_stage_include_everything_that_it_imports(stage):
    listed = set(stage_sources(stage))
    assert all(path.exists() for path in listed)
    missing = closure(PROJECT_DIR / "zero" / "stages" / f"{stage}.py") - listed
    assert {str(path.relative_to(PROJECT_DIR)) for path in missing} == set()


def closure(path: Path) -> set[Path]:
    """A module and all modules of `zero` that it imports, directly or not, without those that only hold constants."""
    found, todo = set(), [path]
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += imported(module)
    return {module for module in found if not has_only_constants(module)}


def has_only_constants(path: Path) -> bool:
    """True for a module of docstrings and constants, which need not be among the sources."""
    statements = ast.parse(path.read_text()).body
    return all(isinstance(s, ast.Expr | ast.Assign) and isinstance(s.value, ast.Constant) for s in statements)


def imported(path: Path) -> list[Path]:
    """The files of `zero` that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    files = []
    for name in names:
        parts = name.split(".")
        if parts[0] == "zero":
            module = PROJECT_DIR.joinpath(*parts)
            files += [file for file in (module.with_suffix(".py"), module / "__init__.py") if file.exists()]
    return files

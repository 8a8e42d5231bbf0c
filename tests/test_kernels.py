"""The cache of compiled kernels never returns code that other sources produced."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest

import zero
from zero import kernels
from zero.search.streams import next_float, stream_of

PACKAGE_DIR = Path(zero.__file__).parent

PROBE = """
import json
import numpy as np
from zero.kernels import kernel_cache_dir
from zero.play.moves import draw_edge
from zero.search.streams import stream_of
from zero.search.tree import add_node, new_trees

trees = new_trees(1, 2, 100)
add_node(trees, 0, np.ones(100, np.bool_), 0.0)
trees.visit_count[:] = 1
trees.num_visited[:] = 100
trees.node_visits[0, 0] = 100
drawn = [draw_edge(trees, 0, stream_of(1, 1, "test", game)) for game in range(100)]
hits, misses = (sum(counts.values()) for counts in (draw_edge.stats.cache_hits, draw_edge.stats.cache_misses))
print(json.dumps({"highest": max(drawn), "hits": hits, "misses": misses, "folder": str(kernel_cache_dir())}))
"""
"""A program that runs a kernel which calls kernels of another module."""


@pytest.fixture
def copy_of_package(tmp_path, monkeypatch):
    """A copy of the sources, which `zero.kernels` treats as its own."""
    target = tmp_path / "clone" / "zero"
    shutil.copytree(PACKAGE_DIR, target, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernels, "PACKAGE_DIR", target)
    monkeypatch.setenv("ZERO_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_BOUNDSCHECK", raising=False)
    return target


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n# an edit\n")


KERNEL_MODULES = sorted(
    path.relative_to(PACKAGE_DIR).as_posix()
    for path in PACKAGE_DIR.rglob("*.py")
    if path.name != "kernels.py" and "kernel\ndef " in path.read_text()
)


def test_the_kernel_modules_are_found():
    assert {"games/go.py", "search/mcts.py", "play/lockstep_games.py"} <= set(KERNEL_MODULES)


def test_an_edit_of_a_kernel_source_changes_the_folder(copy_of_package):
    folders = [kernels.kernel_cache_dir()]
    for name in (*KERNEL_MODULES, "kernels.py"):
        edit(copy_of_package / name)
        folders.append(kernels.kernel_cache_dir())
    assert len(set(folders)) == len(KERNEL_MODULES) + 2


def test_a_new_source_beside_the_kernels_changes_the_folder(copy_of_package):
    before = kernels.kernel_cache_dir()
    (copy_of_package / "games" / "chess.py").write_text("")
    assert kernels.kernel_cache_dir() != before


def test_a_renamed_source_changes_the_folder(copy_of_package):
    before = kernels.kernel_cache_dir()
    (copy_of_package / "games" / "go.py").rename(copy_of_package / "games" / "weiqi.py")
    assert kernels.kernel_cache_dir() != before


def test_an_edit_elsewhere_keeps_the_folder(copy_of_package):
    before = kernels.kernel_cache_dir()
    for name in ("cli/app.py", "config/params.py", "network/model.py"):
        edit(copy_of_package / name)
    assert kernels.kernel_cache_dir() == before


def test_bounds_checks_have_their_own_folder(copy_of_package, monkeypatch):
    fast = kernels.kernel_cache_dir()
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert kernels.kernel_cache_dir() != fast


def test_another_version_of_numba_has_its_own_folder(copy_of_package, monkeypatch):
    before = kernels.kernel_cache_dir()
    monkeypatch.setattr(numba, "__version__", "0.1")
    assert kernels.kernel_cache_dir() != before


def test_the_default_folder_is_in_the_users_cache(copy_of_package, monkeypatch, tmp_path):
    monkeypatch.delenv("ZERO_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert kernels.kernel_cache_dir().parent == tmp_path / "xdg" / "zero" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert kernels.kernel_cache_dir().parent == tmp_path / "home" / ".cache" / "zero" / "kernels"


def probe(clone: Path) -> dict[str, Any]:
    """Runs the program with the sources of a clone, in its own process."""
    environment = {**os.environ, "PYTHONPATH": str(clone.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=clone.parent, env=environment, capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_compiled_code_is_shared_by_clones_and_follows_an_edit_in_a_called_module(copy_of_package, tmp_path):
    first = probe(copy_of_package)
    assert first["hits"] == 0
    assert first["highest"] > 90
    other_clone = tmp_path / "other" / "zero"
    shutil.copytree(copy_of_package, other_clone)
    second = probe(other_clone)
    assert second == {**first, "hits": 1, "misses": 0}
    streams = copy_of_package / "search" / "streams.py"
    text = streams.read_text()
    assert text.count("1.0 / (1 << 53)") == 1
    streams.write_text(text.replace("1.0 / (1 << 53)", "0.5 / (1 << 53)"))  # numbers in [0, 0.5)
    edited = probe(copy_of_package)
    assert edited["folder"] != first["folder"]
    assert edited["hits"] == 0
    assert edited["highest"] < 50


def test_processes_that_start_together_compile_once(copy_of_package):
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(probe, [copy_of_package] * 3))
    assert sorted((result["hits"], result["misses"]) for result in results) == [(0, 1), (1, 0), (1, 0)]
    assert len({result["highest"] for result in results}) == 1


def test_kernels_run_without_a_folder_that_can_be_written(copy_of_package, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZERO_KERNEL_CACHE", str(tmp_path / "file" / "cache"))
    assert probe(copy_of_package)["hits"] == 0


def test_the_wait_for_another_process_is_limited(tmp_path):
    with (tmp_path / "lock").open("wb") as first, (tmp_path / "lock").open("wb") as second:
        assert kernels.lock_file(first, 1.0)
        assert not kernels.lock_file(second, 0.2)
        first.close()
        assert kernels.lock_file(second, 1.0)


def test_a_long_wait_is_reported_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kernels, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    caplog.set_level("INFO")
    with (tmp_path / "lock").open("wb") as first, (tmp_path / "lock").open("wb") as second:
        assert kernels.lock_file(first, 1.0)
        kernels.lock_file(second, 0.09)
        assert caplog.messages == []
        kernels.lock_file(second, 0.4)
        assert caplog.messages == ["waiting for another process that compiles kernels"]


def test_a_long_compilation_is_reported_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    caplog.set_level("INFO")
    lock = kernels.CompileLock(tmp_path / "lock")
    lock.on_start(None)
    lock.on_start(None)
    assert caplog.messages == []
    monkeypatch.setattr(kernels, "SLOW_SECONDS", 0.0)
    lock.on_start(None)
    lock.on_start(None)
    for _ in range(4):
        lock.on_end(None)
    assert caplog.messages == ["compiling kernels: some minutes after each update; `make setup` does it in advance"]


def test_a_script_gets_no_report(monkeypatch, caplog):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    caplog.set_level("INFO")
    kernels.report("compiling")
    assert caplog.messages == []


def test_the_compile_lock_is_released_by_the_last_thread(tmp_path):
    lock = kernels.CompileLock(tmp_path / "cache" / "lock")
    lock.on_start(None)
    lock.on_start(None)
    lock.on_end(None)
    with (tmp_path / "cache" / "lock").open("wb") as other:
        assert not kernels.lock_file(other, 0.1)
        lock.on_end(None)
        assert kernels.lock_file(other, 0.1)


def test_a_loaded_kernel_is_bound_without_the_lock(monkeypatch):
    stream, other = (stream_of(1, 1, "test", 0) for _ in range(2))
    found = next_float(other)
    monkeypatch.setattr(kernels, "lock_file", lambda *_: pytest.fail("waits for other processes"))
    assert kernels.bound(next_float, stream)() == found

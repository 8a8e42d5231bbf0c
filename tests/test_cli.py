"""The command `zero`: without a command, its exit status, `--quiet`, and the shell's completion."""

import errno
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR, git, run, zero
from tests.flows.examples import decision
from tests.made_generations import made_entry
from zero import cli, progress
from zero.config.params import preset_text
from zero.errors import LineageError
from zero.lineage.overview import closing_lines, overview_lines, zero_command
from zero.record.ledger import append_entry, last_line_digest
from zero.storage.manifests import LedgerEntry

BASH = shutil.which("bash") or "/bin/bash"
COMPLETE = """
eval "$(zero --show-completion bash)"
for words in "$@"; do
  COMP_WORDS=($words)
  if [[ $words == *" " ]]; then COMP_WORDS+=(""); fi
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _zero_completion zero
  echo "${COMPREPLY[*]}"
done
"""
"""A shell script that prints the completions of each argument, a line for each."""


def entry(generation: int, previous: str, promoted: bool | None) -> LedgerEntry:
    """A ledger entry: of the random network, or of a decision."""
    return made_entry(
        generation,
        lineage="tiny",
        kind="start" if promoted is None else "decision",
        decision=None if promoted is None else decision(promoted).model_copy(update={"generation": generation}),
        champion_generation=generation if promoted else 0,
        previous=previous,
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the lineage `tiny`: its ledger and tags of generations 0 and 1, and nothing else."""
    monkeypatch.setenv("ZERO_HOME", str(tmp_path))
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    text = ""
    for generation, promoted in enumerate((None, True)):
        text = append_entry(text, entry(generation, last_line_digest(text), promoted))
    workspace = tmp_path / ".zero/workspaces/tiny"
    (workspace / "record").mkdir(parents=True)
    (workspace / "record/ledger.jsonl").write_text(text)
    (workspace / ".git").mkdir()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "project")
    for generation in range(2):
        git(tmp_path, "tag", f"tiny/gen-{generation:04d}")
    return tmp_path


def test_outside_a_project_the_first_step_is_to_find_one(tmp_path: Path) -> None:
    lines = overview_lines(tmp_path)
    assert lines[0] == f"{tmp_path} is not a project: it has no params.yaml"
    assert "set ZERO_HOME" in lines[3] and f"{zero_command()} play shipped:go9" in lines[4]


def test_a_project_without_a_lineage_begins_with_make_generation(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    lines = overview_lines(tmp_path)
    assert lines[0] == f"project {tmp_path}: no lineage yet" and lines[3].startswith("  make generation ")


def test_each_lineage_is_a_line_with_generation_champion_and_decision(home: Path) -> None:
    heading, tiny = overview_lines(home)[2:4]
    assert heading.split()[:3] == ["lineage", "generation", "champion"]
    assert tiny.split(maxsplit=2) == ["tiny", "1", "generation 1  promoted, 58.8% (95 % interval 53.8% to 63.5%)"]
    text = "\n".join(overview_lines(home))
    assert "the servers do not run; `make up` starts them" in text and "  make generation LINEAGE=tiny " in text


def test_a_damaged_ledger_does_not_hide_the_other_lineages(home: Path) -> None:
    ledger = home / ".zero/workspaces/broken/record/ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{\n")
    broken, tiny = overview_lines(home)[3:5]
    assert "line 1 is not a ledger entry" in broken and "promoted" in tiny


def test_a_lineage_that_is_being_written_can_be_stopped(home: Path) -> None:
    lock = home / ".zero/workspaces/tiny/.git/zero.lock"
    lock.write_text(str(os.getpid()))
    text = "\n".join(overview_lines(home))
    assert f"process {os.getpid()} is writing tiny now" in text and " stop tiny " in text and "make gen" not in text
    ended = subprocess.Popen(["true"])
    ended.wait()
    lock.write_text(str(ended.pid))
    assert "make generation" in "\n".join(overview_lines(home))


def test_the_servers_that_answer_are_listed(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        page, mlflow = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (server, closed))
        closed.close()
        (home / ".zero/servers.json").write_text(json.dumps({"web": page, "mlflow": mlflow}))
        lines = overview_lines(home)
        assert f"page  {page}" in lines and not any(mlflow in line for line in lines)
        look, play = closing_lines(home, "tiny")[1:3]
    assert look.split() == ["look", "at", "it:", f"{page}/#/lineages/tiny/1"]
    assert play.split()[2:] == [f"{page}/#/play", "or", *zero_command().split(), "play", "tiny/gen-0001"]


def test_a_generation_ends_with_five_lines(home: Path) -> None:
    lines = zero(home, "status", "--last", "tiny", ZERO_HOME=str(home), PYTHONPATH=str(SOURCE_DIR)).stdout.splitlines()
    assert lines[0] == (
        "tiny/gen-0001: the challenger scored 58.8% (95 % interval 53.8% to 63.5%) in 400 games, 55% was needed; "
        "it is the new champion"
    )
    assert [line.split(":")[0] for line in lines[1:]] == ["look at it", "play it", "next generation", "stop"]
    assert lines[3].endswith(" make generation LINEAGE=tiny") and lines[4].endswith(" make down")
    with pytest.raises(LineageError, match="unknown lineage 'other'"):
        closing_lines(home, "other")


def test_without_a_command_no_large_library_is_imported(home: Path) -> None:
    program = (
        "import sys; sys.argv = ['zero']\nfrom zero.cli import main\ntry: main()\nexcept SystemExit as end:\n"
        "  assert not end.code\n  print(*{'torch', 'numpy', 'mlflow', 'dvc', 'prefect'} & sys.modules.keys())"
    )
    shown = run([sys.executable, "-c", program], SOURCE_DIR, ZERO_HOME=str(home)).stdout.splitlines()
    assert shown[0] == f"project {home}" and shown[-1] == ""


def test_make_without_a_target_says_where_the_project_stands(home: Path, tmp_path: Path) -> None:
    shutil.copy(SOURCE_DIR / "Makefile", home)
    assert "Nothing is installed yet. First: make generation\n" in run(["make"], home).stdout
    python = home / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (home / ".venv/zero-stamp").touch()
    shown = run(["make"], home, PYTHONPATH=str(SOURCE_DIR)).stdout
    assert f"project {home}\n" in shown and "\n  make generation " in shown and "Nothing is installed" not in shown


def test_make_generation_shows_that_shards_are_submitted_again(home: Path) -> None:
    shutil.copy(SOURCE_DIR / "Makefile", home)
    (story,) = re.findall(r"sed -u .*'", run(["make", "-n", "generation"], home).stdout)[:1]
    log = [
        "▪ 06:58:48.051 064cf67fed14 Worker 'w' submitting flow run '1'",
        "▪ 06:58:48.052 064cf67fed14 Flow run 'a' submitted to infrastructure",
        "▪ 06:58:49.053 064cf67fed14 the cluster was lost; submitting the missing shards of selfplay again",
    ]
    shown = subprocess.run(story, shell=True, input="\n".join(log), capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "the cluster was lost; submitting the missing shards of selfplay again"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 0),
        (("--help",), 0),
        (("status", "other"), 1),
        (("statsu",), 2),
        (("match", "a"), 2),
        (("gtp", "random", "--seconds", "-1"), 2),
    ],
)
def test_the_exit_status(home: Path, words: tuple[str, ...], status: int) -> None:
    done = zero(home, *words, check=False, ZERO_HOME=str(home), PYTHONPATH=str(SOURCE_DIR))
    assert done.returncode == status, done.stderr
    assert bool(done.stderr) == bool(status) and "Traceback" not in done.stderr


def test_ctrl_c_is_exit_status_130_without_a_traceback(home: Path) -> None:
    os.mkfifo(home / "spec.json")
    command = [sys.executable, "-m", "zero", "shard", str(home / "spec.json")]
    process = subprocess.Popen(command, cwd=SOURCE_DIR, stderr=subprocess.PIPE, text=True)
    with (home / "spec.json").open("w"):  # returns when the command reads the file
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == ""
    assert process.returncode == 130


def test_quiet_shows_the_result_without_progress(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setenv("ZERO_PROGRESS", "")
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    for number, options in enumerate([(), ("--quiet",)]):
        match = ("match", "random", "random", "--games", "2", "--size", "5", "--out", str(home / str(number)))
        monkeypatch.setattr(sys, "argv", ["zero", *options, *match])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        out, err = capsys.readouterr()
        assert "random against random: 2 games" in out
        assert err == "" if options else err.endswith("match: 2 of 2 games\n")


def test_the_shell_completes_commands_lineages_generations_and_presets(home: Path) -> None:
    asked = {
        "zero stat": "status",
        "zero status t": "tiny",
        "zero reproduce tiny/": "tiny/gen-0000 tiny/gen-0001",
        "zero match ": "tiny",
        "zero play tiny/gen-0001": "tiny/gen-0001",
        "zero new other --preset go9-l": "go9-laptop",
        "zero export tiny weights --format on": "onnx",
    }
    done = run([BASH, "-c", COMPLETE, "bash", *asked], home, ZERO_HOME=str(home), PYTHONPATH=str(SOURCE_DIR))
    assert dict(zip(asked, done.stdout.splitlines(), strict=True)) == asked
    assert (
        run([BASH, "-c", COMPLETE, "bash", "zero reproduce t"], home, ZERO_HOME="/", PYTHONPATH=str(SOURCE_DIR)).stdout
        == "\n"
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_cannot_be_written_is_one_line(code, monkeypatch, capsys):
    def write() -> None:
        raise OSError(code, os.strerror(code), "/there/file")

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"zero: cannot write /there/file: {os.strerror(code)}; {cli.NOT_WRITABLE[code]} and run the same command again"
    ]


def test_another_system_error_with_a_path_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", lambda: Path("/proc/there/file").mkdir())
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"zero: cannot use /proc/there/file: No such file or directory; {cli.NOT_USABLE}"]


def test_a_system_error_without_a_path_is_raised(monkeypatch):
    def write() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(OSError, match="Input/output error"):
        cli.main()

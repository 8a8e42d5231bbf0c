"""The messages of the errors that a user can cause: each runs a real command and compares the complete line.

A message names the value, the cause and the remedy. This file is the list to read when you write a new one.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from zero.cli import main
from zero.config.params import GAMES, parse_params, preset_text, presets
from zero.data.sgf import read_sgf
from zero.errors import ZeroError
from zero.games.rules import TRAITS

Run = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with git, `params.yaml`, some broken files, and no lineage."""
    folder = tmp_path_factory.mktemp("project")
    files = {
        "params.yaml": preset_text("smoke"),
        "not-yaml.yaml": "seed: [1\n",
        "list.yaml": "- 1\n",
        "not-a-key.pem": "hello\n",
        "not-json.json": "hello\n",
        "small.json": "{}\n",
        "weights.safetensors": "hello\n",
        "games/manifest.json": "hello\n",
        "bare/params.yaml": preset_text("smoke"),
        "broken/.zero/workspaces/cut/record/ledger.jsonl": '{"generation": 0',
        "broken/.zero/workspaces/empty/record/ledger.jsonl": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "latin-1.yaml").write_bytes(b"# Z\xfcrich\nseed: 1\n")
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet", "--initial-branch", "main"], check=True)
    subprocess.run([*git, "add", "params.yaml"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "Begin"], check=True)
    return folder


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `zero` in a folder of the project and returns the line of its error, with HOME for the project."""
    for variable in ("MLFLOW_TRACKING_URI", "ZERO_STORE", "ZERO_SIGNING_KEY"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str, folder: str = ".") -> str:
        monkeypatch.setenv("ZERO_HOME", str(home / folder))
        monkeypatch.chdir(home / folder)
        monkeypatch.setattr(sys, "argv", ["zero", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1].startswith("zero: "), lines
        return lines[-1].removeprefix("zero: ").replace(str(home), "HOME")

    return run


def edited(changes: dict[str, Any]) -> str:
    """The parameters of the preset `smoke` with some values changed, by dotted name."""
    tree = parse_params(preset_text("smoke"), "smoke").model_dump(mode="json")
    for name, value in changes.items():
        *sections, field = name.split(".")
        section = tree
        for each in sections:
            section = section[each]
        section[field] = value
    return yaml.safe_dump(tree, sort_keys=False)


PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"search.c_punt": 1.5}, "unknown parameter search.c_punt (did you mean 'c_puct'?)"),
    ({"seed": "one"}, "seed = 'one': must be a valid integer, unable to parse string as an integer"),
    ({"selfplay.num_slots": -8}, "selfplay.num_slots = -8: must be greater than or equal to 1"),
    ({"game.name": "chess"}, "game.name = 'chess': must be one of " + ", ".join(map(repr, GAMES))),
    ({"game.size": 20}, "game.size = 20: must be less than or equal to 19"),
    ({"game.komi": 0.25}, "game.komi = 0.25: must be a multiple of 0.5"),
    ({"network.tower": "residul"}, "network.tower = 'residul': must be 'residual', 'plain' or 'shallow'"),
    (
        {"training.momentum": "much"},
        "training.momentum = 'much': must be a valid number, unable to parse string as a number",
    ),
    ({"search.max_nodes": 8}, "search.max_nodes 8 is too small: selfplay.num_simulations 8 needs at least 10"),
    (
        {"training.batch_size": 33, "profile.training_processes": 2},
        "training.batch_size 33 is not a multiple of profile.training_processes 2; make it one",
    ),
    ({"search.root": "gumbel"}, "selfplay.dirichlet_fraction 0.25 has no effect at a Gumbel root; set it to 0"),
    (
        {"network.tower": "shallow", "network.global_pooling": True},
        "network.global_pooling needs blocks, a 'shallow' tower has none; set it to false",
    ),
    ({"game": {"name": "gomoku", "size": 5, "in_a_row": 6}}, "game: in_a_row 6 does not fit on a board of size 5"),
    (
        {"game": {"name": "gomoku", "size": 5, "in_a_row": 4}, "network.score_head": True},
        "network.score_head is only for Go; set it to false for gomoku",
    ),
    (
        {"selfplay.fast_simulations": 9, "selfplay.full_search_fraction": 0.5},
        "selfplay: fast_simulations 9 is above num_simulations 8; lower it",
    ),
    (
        {"training.learning_rate": [{"from_step": 5, "learning_rate": 0.1}]},
        "training: learning_rate must start at step 0 and rise, got steps [5]",
    ),
    (
        {"training.learning_rate": []},
        "training.learning_rate = []: Tuple should have at least 1 item after validation, not 0",
    ),
    (
        {"training.warmup_steps": 13},
        "training: warmup_steps 13 is longer than the first training, num_steps 12; lower it",
    ),
    (
        {"profile.device": "cuda", "profile.backend": "openvino"},
        "profile: backend 'openvino' runs on device 'cpu', got 'cuda'; set backend to 'torch'",
    ),
    ({"selfplay.num_games": 0}, "selfplay.num_games 0 leaves no games to learn from; raise it, or set dataset"),
    (
        {"selfplay.num_games": 0, "dataset": "datasets/kgs", "selfplay.overlap": True},
        "selfplay.overlap has no effect with selfplay.num_games 0; set it to false",
    ),
    ({"gating.threshold": 1.5}, "gating.threshold = 1.5: must be less than or equal to 1"),
    ({"executor.kind": "cloud"}, "executor.kind = 'cloud': must be 'local' or 'dask'"),
]
"""Changes of the preset `smoke`, and the message after the file's name."""

COMMANDS = """
import missing.sgf --out made --preset smoke
    cannot read missing.sgf: No such file or directory; give files, folders or archives of SGF
import params.yaml --out made --preset smoke
    no game was imported; rejected: not SGF 1; the first is params.yaml: it has no '(;', which starts a game
import params.yaml --out games --preset smoke
    HOME/games already exists; give another --out, or delete it first
import params.yaml --out made --params missing.yaml
    cannot read missing.yaml: No such file or directory; give --preset, one of PRESETS
import params.yaml --out made --preset smoke --split 1,1
    --split '1,1' must be three fractions for train, validation, test, such as 0.8,0.1,0.1
import params.yaml --out made --preset smoke --min-rating strong
    --min-rating 'strong' is not a rating; give a rank (3d, 5k, 1p) or a number (2000)
new go9 --preset smoek
    unknown preset 'smoek' (did you mean 'smoke'?); presets: PRESETS
new go9 --preset smoke --params params.yaml
    --preset and --params exclude each other; give one of them
new go9 --params missing.yaml
    cannot read missing.yaml: No such file or directory; give --preset, one of PRESETS
new go9 --params not-yaml.yaml
    not-yaml.yaml is not YAML: while parsing a flow sequence in "<unicode string>", line 1, column 7: seed: [1 ^
    expected ',' or ']', but got '<stream end>' in "<unicode string>", line 2, column 1: ^
new go9 --params list.yaml
    list.yaml: the file must be a mapping, got [1]
new go9 --params latin-1.yaml
    latin-1.yaml: parameter game is missing and has no default; add it, see docs/parameters.md
new go9 --preset smoke --set search.c_punt=1
    preset smoke: unknown parameter search.c_punt (did you mean 'c_puct'?)
new go9 --preset smoke --set c_puct
    'c_puct' is not a change; write section.name=value, such as search.c_puct=2
new ../up --preset smoke
    '../up' is not a valid lineage name; use up to 40 of a-z, 0-9 and '-', starting with a letter
new random --preset smoke
    'random' is the name of a kind of player, as in `zero match`; choose another name
status go7
    unknown lineage 'go7'; known are: none yet; make it with `zero new go7`
status a-name-that-is-longer-than-40-characters-is-refused
    unknown lineage 'a-name-that-is-longer-than-40-characters-is-refused'; known are: none yet; use up to 40 of a-z, 0-9
    and '-', starting with a letter
restore go7
    no branch lineage/go7 in HOME; make the lineage with `zero new go7`, or fetch it: `git fetch --tags origin
    lineage/go7:lineage/go7`
restore go*
    unknown lineage 'go*'; known are: none yet; use up to 40 of a-z, 0-9 and '-', starting with a letter
track go7
    MLFLOW_TRACKING_URI is not set and no local server runs; set it, or run `make up`
provenance go9/gen-0001
    unknown generation 'go9/gen-0001'; `git tag --list '*/gen-*'` lists the known ones
branch go9 mine/gen-0001 bold
    mine/gen-0001 is not a generation of lineage 'go9'; give one of its tags, such as go9/gen-0000
reproduce go9/gen-0001 --sample 1 --keep again
    --sample and --keep exclude each other (a sample has no clone); give one of them
audit go7
    unknown lineage 'go7'; known are: none yet; make it with `zero new go7`
audit *
    unknown lineage '*'; known are: none yet; use up to 40 of a-z, 0-9 and '-', starting with a letter
audit go9/twelve
    'go9/twelve' is not a generation; name a lineage (go9) or a tag (go9/gen-0012)
audit go9 --key missing.pem
    cannot read the key missing.pem: No such file or directory; give a public key file (PEM)
audit go9 --key not-a-key.pem
    not-a-key.pem is not an Ed25519 public key; give a public key file (PEM)
impact abc
    'abc' is too short for a digest; give at least 7 digits
impact 3fa9c1d
    no attestation of any lineage in HOME names '3fa9c1d'; give 7 or more digits of a shard's, a network's, a window's
    or a package lock's SHA-256, of a shard's key, of a commit, or the name of a worker or its host
match random random --games 3
    games = 3 is odd; give an even number, half of them with each colour
match random grandom --games 2
    unknown lineage 'grandom'; known are: none yet; make it with `zero new grandom`
match random random,simulations=8 --games 2
    'random,simulations=8': unknown option 'simulations=8'; random has: none
match shipped:go9,simulation=8 random --games 2
    'shipped:go9,simulation=8': unknown option 'simulation=8' (did you mean 'simulations'?); network has: simulations,
    resign, root, pass_wins, considered_actions, value_scale, c_puct
match shipped:go9,simulations=many random --games 2
    'shipped:go9,simulations=many': simulations must be an integer from 0 to 1000000, got 'many'
match shipped:go9,c_puct=2 random --games 2
    'shipped:go9,c_puct=2': a gumbel root does not use c_puct; add root=puct, or remove c_puct
match shipped:chess random --games 2
    unknown shipped player 'chess'; give shipped:go9 or shipped:gomoku8
match shipped:go9 shipped:gomoku8 --games 2
    these players were made for different games: go and gomoku; choose two players of the same game
match shipped:go9 random --games 2 --size 19
    the network is for a 9x9 board with 82 actions, the game has a 19x19 board with 362; use a network for this board
match shipped:go9 random --games 2 --openings 500
    opening_moves must be at most 40 for 81 points, got 500; give a smaller number
match missing.safetensors random --games 2
    cannot find the file missing.safetensors; give a weight file, a lineage, or a generation such as go9/gen-0012
match weights.safetensors random --games 2
    the weight file is corrupt: Error while deserializing: header too small; restore it (in a lineage by `dvc checkout
    --force`)
match rollout:many random --games 2
    'rollout:many': rollout must be an integer from 1 to 1000000, got 'many'
match leelaz:missing.txt random --games 2
    cannot find the weight file missing.txt; give the path of text weights of Leela Zero
match gtp:no-such-program random --games 2
    cannot find the program 'no-such-program'; install it, or give its path
play random --size 20
    size = 20: Input should be less than or equal to 19
play shipped:gomoku8 --komi 5
    komi = 5.0 is for Go only; gomoku has no komi
gtp rollout:5000 --seconds 5
    --seconds 5 has no effect on 'rollout:5000', which has no network; leave it out, or give a player with a network
elo go9 --against gnugo:5
    --against gnugo:5 has no effect without games; give --games too, such as --games 100
import games --out dataset --preset gomoku8 --komi 6.5
    --komi 6.5 is for Go only; gomoku has no komi, so leave it out
gtp shipped:go9,resign=2
    'shipped:go9,resign=2': resign must be a number from -1 (never) to 1, got '2'
export shipped:go9 weights.txt --format leela-zero
    the network is for a 9x9 board with 82 actions, but Leela Zero plays 19x19 Go only; export it with `--format onnx`
export weights.safetensors player --format player
    weights.safetensors is not a recorded generation; give a lineage, or a generation such as go9/gen-0012
sgf missing games.sgf
    no missing/manifest.json; run `dvc checkout`, or `dvc repro` in a lineage's workspace
sgf games games.sgf
    games/manifest.json is not a GameSet: Invalid JSON: expected value at line 1 column 1
shard missing.json
    cannot read missing.json: No such file or directory; give a line of `zero plan` in a file
shard not-json.json
    not-json.json is not a shard specification: Invalid JSON: expected value at line 1 column 1; give a line of `zero
    plan` in a file
shard small.json
    small.json is not a shard specification: kind: Field required; give a line of `zero plan` in a file
plan gating --next
    gating of the next generation cannot be planned yet; `--next` works with selfplay only
plan selfplay --next
    no HOME/state/generation.json; run `dvc checkout`, or `dvc repro` in a lineage's workspace
bare/ selfplay
    no HOME/bare/state/generation.json; run `dvc checkout`, or `dvc repro` in a lineage's workspace
games/ training
    no params.yaml in HOME/games; run this in a lineage's workspace or the project
broken/ status empty
    HOME/broken/.zero/workspaces/empty/record/ledger.jsonl is empty; restore it with `git -C
    HOME/broken/.zero/workspaces/empty/record checkout HEAD -- ledger.jsonl`
broken/ status cut
    HOME/broken/.zero/workspaces/cut/record/ledger.jsonl, line 1 is not a ledger entry; restore it with `git -C
    HOME/broken/.zero/workspaces/cut/record checkout HEAD -- ledger.jsonl`
"""
"""Each command, after the folder that it runs in if that is not the project's, and its message below it."""

SGF: list[tuple[str, str]] = [
    ("", "not an SGF file: it has no '(;', which starts a game"),
    (
        "(;GM[3])",
        "SGF of an unsupported game: GM[3]; supported are "
        + ", ".join(f"GM[{traits.sgf_number}] ({traits.title})" for traits in TRAITS.values()),
    ),
    ("(;SZ[99])", "SZ[99] is not a board size; use SZ[9] or SZ[columns:rows], at most 19"),
    ("(;KM[much])", "KM[much] is not a komi; use a number such as KM[7.5]"),
    ("(;AB[aa])", "SGF with set-up stones or handicap (AB); only games from an empty board are supported"),
    ("(;W[aa])", "SGF move 1 is W's, out of turn; Black moves first, then the players alternate"),
    ("(;SZ[9];B[zz])", "SGF move 1: 'zz' is not a point of a board of 9 rows and 9 columns"),
    ("(;B[aa", "SGF syntax error in line 1: unexpected text at '[aa'"),
    ("(;B[aa])(;B[bb])", "the SGF file holds 2 games, expected one; give a file with one game"),
]


@pytest.mark.parametrize(("changes", "message"), PARAMETERS)
def test_a_bad_parameter_is_named_with_its_value_and_limit(
    home: Path, run: Run, changes: dict[str, Any], message: str
) -> None:
    (home / "bad.yaml").write_text(edited(changes))
    assert run("new", "go9", "--params", "bad.yaml") == f"bad.yaml: {message}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_parameters_for_a_gpu_need_one(home: Path, run: Run) -> None:
    (home / "bad.yaml").write_text(edited({"profile.device": "cuda"}))
    assert run("new", "go9", "--params", "bad.yaml") == (
        "bad.yaml: profile.device = 'cuda', but torch finds no CUDA device; use a machine with an "
        "NVIDIA GPU and a CUDA build of PyTorch, or a parameters file with `device: cpu` and "
        "`backend: openvino`"
    )


def test_a_match_against_a_program_that_is_not_installed_says_how_to_install_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zero.players.gtp.program_path", lambda name: None)
    assert run("match", "random", "gnugo:10", "--games", "2", "--size", "9") == (
        "GNU Go is not installed; install it (Debian and Ubuntu: `apt install gnugo`)"
    )


def cases_of(text: str) -> list[tuple[str, str, str]]:
    """Folder, command and message of each case."""
    found = []
    for case in re.split(r"\n(?! )", text.strip()):
        command, *lines = case.splitlines()
        folder, command = command.split("/ ") if "/ " in command else (".", command)
        message = " ".join(line.strip() for line in lines).replace("PRESETS", ", ".join(presets()))
        found.append((folder, command, message))
    return found


@pytest.mark.parametrize(("folder", "command", "message"), cases_of(COMMANDS))
def test_a_command_that_cannot_work_says_why_and_what_to_do(run: Run, folder: str, command: str, message: str) -> None:
    assert run(*command.split(), folder=folder) == message


@pytest.mark.parametrize(("text", "message"), SGF)
def test_an_sgf_file_that_cannot_be_read_names_the_property(text: str, message: str) -> None:
    with pytest.raises(ZeroError) as found:
        read_sgf(text)
    assert str(found.value) == message


def test_every_message_is_one_line_without_a_full_stop() -> None:
    tables: tuple[Any, ...] = (PARAMETERS, cases_of(COMMANDS), SGF)
    messages = [str(case[-1]) for table in tables for case in table]
    assert len(messages) >= 80
    for message in messages:
        assert "\n" not in message and not message.endswith(".") and len(message) < 300

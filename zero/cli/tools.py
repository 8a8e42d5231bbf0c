"""Commands that import games of other programs, write games as SGF, and write networks for other programs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zero.cli.app import TOOLS, Json, app, complete_player, complete_preset, params_source
from zero.config.params import presets
from zero.config.settings import home_dir
from zero.errors import ParamsError

if TYPE_CHECKING:
    from zero.data.dataset.manifest import Dataset


@app.command("import", rich_help_panel=TOOLS)
def import_games(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="SGF files, folders, and archives (.zip, .tgz, .tar...).")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the dataset to make; it must not exist.")],
    preset: Annotated[
        str,
        typer.Option(
            help=f"Game (board size, komi) of a preset: {', '.join(presets())}.", autocompletion=complete_preset
        ),
    ] = "",
    params: Annotated[
        Path | None, typer.Option(help="Game of a parameters file; by default the project's params.yaml.")
    ] = None,
    komi: Annotated[
        str, typer.Option(help="Accepted komi, such as `6.5,7.5`, or `any`; by default that of the game.")
    ] = "",
    min_rating: Annotated[
        str | None, typer.Option(help="Rating that both players must have: a rank (`3d`, `5k`, `1p`) or a number.")
    ] = None,
    min_moves: Annotated[int, typer.Option(min=1, help="Moves of the shortest game that is accepted.")] = 10,
    opening_moves: Annotated[
        int, typer.Option(min=0, help="Random moves at the start of each game, which a training does not learn.")
    ] = 0,
    split: Annotated[str, typer.Option(help="Fractions for train, validation and test.")] = "0.8,0.1,0.1",
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes that check games; 0: one per core.")] = 0,
    as_json: Json = False,
) -> None:
    """Imports SGF games of people or other programs as a dataset for supervised learning; see docs/import.md.

    Each game is replayed by the rules. A game is rejected, never changed, if it is broken, has an illegal move, no
    result, handicap or set-up stones, or another board size or komi. The dataset lists every rejected game with its
    reason, and every duplicate. The same files give the same bytes, in any order and with any number of jobs.

    `zero import kgs.tgz more/ --out datasets/kgs --preset go19-paper --komi any --min-rating 1d`
    """
    from zero.config.params import GoParams, parse_game
    from zero.data.dataset.build import build_dataset
    from zero.data.dataset.options import ANY, parse_options
    from zero.progress import progress_of

    game = parse_game(*params_source(preset, params))
    if komi not in ("", ANY) and not isinstance(game, GoParams):
        raise ParamsError(f"--komi {komi} is for Go only; {game.name} has no komi, so leave it out")
    options = parse_options(game, komi, min_rating, min_moves, split, seed, opening_moves)
    with progress_of("import", "kB") as progress:
        dataset = build_dataset(
            paths,
            out,
            game,
            options,
            jobs or len(os.sched_getaffinity(0)),
            lambda done, total: progress(done >> 10, total >> 10),
        )
    if as_json:
        typer.echo(dataset.model_dump_json(indent=1))
    else:
        _show_dataset(dataset, out)


@app.command(rich_help_panel=TOOLS)
def sgf(
    games: Annotated[Path, typer.Argument(help="Folder of a game set in its workspace, such as data/match.")],
    out: Annotated[Path, typer.Argument(help="SGF file to write; the games become a collection.")],
) -> None:
    """Writes games as SGF with komi, rules, result and the digests of the players."""
    from zero.config.params import PARAMS_FILE, load_params, params_digest
    from zero.data.records import game_record, read_records
    from zero.data.sgf import game_to_sgf, write_collection
    from zero.errors import ZeroError
    from zero.games.rules import rules_of
    from zero.record.ledger import generation_tag
    from zero.storage.files import checked_bytes, read_manifest
    from zero.storage.manifests import GameSet

    game_set = read_manifest(games, GameSet)
    # a game set is two folders below its workspace, like data/match
    workspace = games.resolve().parent.parent
    origin, params = game_set.origin, load_params(workspace)
    if params_digest(params, origin.stage) != origin.params_digest:
        tag = generation_tag(origin.lineage, origin.generation)
        raise ZeroError(
            f"{workspace / PARAMS_FILE} changed since the games of {games} were made; get both with "
            f"`zero checkout {tag} FOLDER`"
        )
    rules = rules_of(params.game)
    event = f"{origin.lineage} generation {origin.generation}, {origin.stage}"
    names = {digest: name for name, digest in origin.inputs.items()}
    texts = []
    for shard in game_set.shards:
        columns = read_records(checked_bytes(shard.file, games), str(games / shard.file.path))
        for record in (game_record(columns, index) for index in range(columns.num_games)):
            black, white = names.get(record.black, ""), names.get(record.white, "")
            texts.append(game_to_sgf(rules, record, event=event, black_name=black, white_name=white))
    write_collection(out, texts)
    typer.echo(f"{len(texts)} games in {out}")


@app.command(rich_help_panel=TOOLS)
def export(
    source: Annotated[
        str,
        typer.Argument(
            help="A generation (go9/gen-0012), a lineage, shipped:go9; with `onnx` or `leela-zero` any network.",
            autocompletion=complete_player,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="File to write; a folder for `player`.")],
    file_format: Annotated[
        Literal["leela-zero", "onnx", "player"], typer.Option("--format", help="Format of the output.")
    ],
) -> None:
    """Writes a network for other programs: Leela Zero text weights (19x19 Go), ONNX, or a player folder.

    A player folder has the weights, the parameters and the signed attestation. `zero play FOLDER/weights.safetensors`
    starts it on any machine.
    """
    if file_format == "player":
        from zero.interop.export import export_player

        num_bytes = export_player(home_dir(), source, out)
    else:
        from zero.interop.export import export_network

        num_bytes = export_network(home_dir(), source, out, file_format)
    typer.echo(f"{out}: {num_bytes} bytes")


def _show_dataset(dataset: "Dataset", out: Path) -> None:
    """Prints what became of the games."""
    from zero.data.dataset.manifest import DUPLICATES_FILE, REJECTED_FILE

    rejected = sum(dataset.rejected.values())
    lines = [("games read", dataset.num_read, "")]
    lines += [(name, size.num_games, f"{size.num_positions} positions") for name, size in dataset.splits.items()]
    lines.append(("duplicates", dataset.num_duplicates, str(out / DUPLICATES_FILE)))
    lines.append(("rejected", rejected, str(out / REJECTED_FILE)))
    by_count = sorted(dataset.rejected.items(), key=lambda item: (-item[1], item[0]))
    lines += [(f"  {reason}", count, "") for reason, count in by_count]
    for line, count, note in lines:
        typer.echo(f"{line:22}{count:>9}  {note}".rstrip())
    typer.echo(f"the dataset is {out}; add it to the project with `dvc add {out}`")

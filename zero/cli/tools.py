"""Commands that write games as SGF and networks for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import TOOLS, app
from zero.config.settings import home_dir


@app.command(rich_help_panel=TOOLS)
def sgf(
    games: Annotated[Path, typer.Argument(help="Folder of a game set, such as data/match.")],
    out: Annotated[Path, typer.Argument(help="SGF file to write; the games become a collection.")],
) -> None:
    """Writes games as SGF with komi, rules, result and the digests of the players."""
    from zero.config.params import load_params
    from zero.data.records import game_record, read_records
    from zero.data.sgf import game_to_sgf, write_collection
    from zero.games.rules import rules_of
    from zero.storage.files import checked_path, read_manifest
    from zero.storage.manifests import GameSet

    game_set = read_manifest(games, GameSet)
    origin, rules = game_set.origin, rules_of(load_params(Path.cwd()).game)
    event = f"{origin.lineage} generation {origin.generation}, {origin.stage}"
    names = {digest: name for name, digest in origin.inputs.items()}
    texts = []
    for shard in game_set.shards:
        path = checked_path(shard.file, games)
        columns = read_records(path.read_bytes(), str(path))
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
            help="A generation (go9/gen-0012), a lineage, shipped:go9; with `onnx` or `leela-zero` any network."
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

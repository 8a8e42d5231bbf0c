"""Commands that write games as SGF and networks for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import TOOLS, app
from zero.config.settings import home_dir


@app.command(rich_help_panel=TOOLS)
def sgf(
    games: Annotated[Path, typer.Argument(help="Folder of a game set, such as data/match.")],
    out: Annotated[Path, typer.Argument(help="SGF file to write; several games become a collection.")],
    game: Annotated[int | None, typer.Option(help="Number of one game; by default all games.")] = None,
) -> None:
    """Writes games as SGF with komi, rules, result and the digests of the players."""
    from zero.lineage.status import write_games_as_sgf

    count = write_games_as_sgf(Path.cwd(), games, out, game)
    typer.echo(f"{count} games in {out}")


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

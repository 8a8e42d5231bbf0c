"""Commands that write games as SGF, write networks for other programs, and measure speed."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import TOOLS, Json, app
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


@app.command(rich_help_panel=TOOLS)
def bench(
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds per measurement.")] = 3.0,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each value; the median is shown.")] = 3,
    as_json: Json = False,
) -> None:
    """Measures the speed of the network, self-play, search and rules on one core, with `params.yaml`."""
    from zero.evaluation.throughput import run_bench, table
    from zero.network.profile import load_project_params

    result = run_bench(load_project_params(home_dir()), seconds, repeats)
    typer.echo(result.model_dump_json(indent=1) if as_json else table(result))

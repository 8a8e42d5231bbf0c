"""Players against each other, against people, and in other programs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import PLAYERS, Json, app
from zero.settings import Settings, home_dir

PLAYER_HELP = (
    "`go9`, `go9/gen-0012,simulations=800`, `raw:go9`, a weight file, `models:/zero-go9@champion`, `gnugo:10`, "
    "`leelaz:weights.txt`, `gtp:COMMAND`, `rollout:5000` or `random`."
)


@app.command(rich_help_panel=PLAYERS)
def match(
    first: Annotated[str, typer.Argument(help=PLAYER_HELP)],
    second: Annotated[str, typer.Argument(help="The other player, likewise.")],
    games: Annotated[int, typer.Option(min=2, help="Games, an even number: half with each colour.")] = 400,
    openings: Annotated[int, typer.Option(min=0, help="Random moves at the start, the same for two games.")] = 0,
    seed: Annotated[int, typer.Option(help="Of openings, symmetries and engines.")] = 1,
    komi: Annotated[float | None, typer.Option(help="Komi; by default that of the players' parameters.")] = None,
    size: Annotated[int | None, typer.Option(help="Board; by default that of the players' parameters.")] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Games in play at once.")] = 32,
    out: Annotated[Path | None, typer.Option(help="Folder of the match; by default one below .zero/matches.")] = None,
    as_json: Json = False,
) -> None:
    """Plays a match between two players of any kind, and goes on where it was cut short.

    Each game is kept as soon as it is over; a player that fails forfeits it, and the match goes on. The count, all
    games as SGF and, where `MLFLOW_TRACKING_URI` is set, a run in MLflow are written at the end.
    """
    from zero.contest import contest
    from zero.match.screen import match_lines
    from zero.progress import progress_of

    with progress_of("match", "games") as progress:
        played = contest(
            home_dir(),
            (first, second),
            num_games=games,
            opening_moves=openings,
            seed=seed,
            komi=komi,
            size=size,
            games_at_once=at_once,
            folder=out,
            progress=lambda done, total, _: progress(done, total),
        )
    if as_json:
        typer.echo(played.table.model_dump_json(indent=1))
    else:
        for line in match_lines(played.table, played.folder):
            typer.echo(line)
    if uri := Settings().tracking_uri:
        from zero.tracking.matches import track_match

        typer.echo(f"MLflow: {track_match(played.folder, uri)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def play(
    player: Annotated[str, typer.Argument(help=PLAYER_HELP)] = "go9",
    colour: Annotated[
        Literal["black", "white", "both"], typer.Option(help="What you play; with both the player gives hints.")
    ] = "black",
    size: Annotated[int | None, typer.Option(help="Board, for players without a network.")] = None,
    komi: Annotated[float | None, typer.Option(help="Komi; by default that of the player's parameters.")] = None,
    leaves: Annotated[int, typer.Option(min=1, help="Leaves judged at once: more are faster and weaker.")] = 4,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 1,
) -> None:
    """Plays a game with you in the terminal; `help` there lists what you can type."""
    from rich.console import Console

    from zero.contest import seat
    from zero.games.position import BLACK, WHITE
    from zero.interop.terminal.session import play_in_terminal

    mind, rules = seat(home_dir(), player, size, komi, seed, leaves)
    people = {"black": (BLACK,), "white": (WHITE,), "both": (BLACK, WHITE)}[colour]
    try:
        play_in_terminal(mind, rules, Console(highlight=False), people)
    finally:
        mind.close()


@app.command(rich_help_panel=PLAYERS)
def gtp(
    player: Annotated[str, typer.Argument(help=PLAYER_HELP)] = "go9",
    size: Annotated[int | None, typer.Option(help="First board, for players without a network.")] = None,
    komi: Annotated[float | None, typer.Option(help="First komi; by default that of the player's parameters.")] = None,
    leaves: Annotated[int, typer.Option(min=1, help="Leaves judged at once: more are faster and weaker.")] = 4,
    seconds: Annotated[float | None, typer.Option(help="Limit of a move, beside that of its simulations.")] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 1,
) -> None:
    """Speaks the Go Text Protocol, version 2, for Sabaki, Lizzie and other programs; `docs/play.md` says how."""
    from zero.contest import seat
    from zero.interop.gtp.engine import Engine
    from zero.interop.gtp.serve import serve_gtp

    mind, rules = seat(home_dir(), player, size, komi, seed, leaves, seconds)
    try:
        serve_gtp(sys.stdin, sys.stdout, lambda interrupted: Engine(mind, rules, interrupted))
    finally:
        mind.close()

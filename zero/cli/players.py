"""Players against each other, against people, and in other programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import PLAYERS, Json, Lineage, app
from zero.config.settings import Settings, home_dir
from zero.errors import ZeroError

PLAYER_HELP = (
    "`go9`, `go9/gen-0012,simulations=800`, `raw:go9`, `shipped:go9`, a weight file, `models:/zero-go9@champion`, "
    "`gnugo:10`, `leelaz:weights.txt`, `gtp:COMMAND`, `rollout:5000` or `random`."
)
STRONGER_HELP = f"{PLAYER_HELP} `go9` starts the stronger of the lineage's champion and the shipped player."


@contextmanager
def _kept(remedy: str) -> Iterator[None]:
    """What fails in it failed after the work was done and kept here: a line that says so, and no error."""
    try:
        yield
    except ZeroError as error:
        typer.echo(f"not tracked: {error}; {remedy}", err=True)


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


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
    from zero.evaluation.match.screen import match_lines
    from zero.evaluation.match.setup import contest
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
        from zero.evaluation.match.tracking import track_match

        with _kept("the match is kept, the same command catches up"):
            typer.echo(f"MLflow: {track_match(played.folder, uri)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def elo(
    lineage: Lineage,
    games: Annotated[int, typer.Option(min=0, help="Games to add, where they tell most; 0: only what there is.")] = 0,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Fixed opponent, such as shipped:go9, once each; by default GNU Go 10 and 1, or rollouts, and random."
        ),
    ] = None,
    simulations: Annotated[int | None, typer.Option(min=0, help="Of a move; by default the gate's.")] = None,
    match_games: Annotated[int, typer.Option(min=2, help="Games of a match; all is rated anew after each.")] = 20,
    openings: Annotated[int, typer.Option(min=0, help="Random moves at the start, the same for two games.")] = 4,
    at_once: Annotated[int, typer.Option(min=1, help="Games in play at once.")] = 32,
    out: Annotated[Path | None, typer.Option(help="Folder of the ladder; by default below .zero/ladders.")] = None,
    as_json: Json = False,
) -> None:
    """Rates all champions of a lineage and the fixed opponents, with intervals; docs/strength.md says how.

    The gate's matches and all finished matches count. With `--games` it first plays more; cut short, it goes on.
    """
    from rich.console import Console

    from zero.evaluation.ladder import lineage_ladder
    from zero.evaluation.ladder.files import write_ladder
    from zero.evaluation.ladder.growth import Growth, grow
    from zero.evaluation.ladder.screen import ladder_lines, ladder_tables
    from zero.progress import progress_of

    home, uri = home_dir(), Settings().tracking_uri
    if games:
        growth = Growth(games, match_games, openings, tuple(against) if against else None, simulations, at_once)
        with progress_of("elo", "games") as progress:
            for _ in grow(home, lineage, growth, progress):
                pass
    ladder = lineage_ladder(home, lineage, simulations)
    folder = write_ladder(home, ladder, out)
    if as_json:
        typer.echo(ladder.model_dump_json(indent=1))
    else:
        for table in ladder_tables(ladder):
            Console().print(table)
        for line in [*ladder_lines(ladder), f"table and curve: {folder}"]:
            typer.echo(line)
    if uri:
        from zero.evaluation.ladder.notebook import track_ladder

        with _kept(f"catch up later with `zero elo {lineage}`"):
            typer.echo(f"MLflow: {track_ladder(home, uri, ladder)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def yardsticks(lineage: Lineage, as_json: Json = False) -> None:
    """Holds the networks of each generation against games that were played anyway; docs/strength.md says which.

    Computes what is missing and has become computable, in seconds a generation; nothing is played.
    """
    from rich.console import Console

    from zero.evaluation.probes.filling import fill_in, newest_rules
    from zero.evaluation.probes.notebook import track_yardsticks
    from zero.evaluation.probes.picture import write_picture
    from zero.evaluation.probes.screen import yardstick_tables
    from zero.evaluation.probes.table import yardsticks_dir
    from zero.progress import progress_of

    home = home_dir()
    rules = newest_rules(home, lineage)
    with progress_of("yardsticks", "networks") as progress:
        found = fill_in(home, lineage, progress)
    if found:
        write_picture(yardsticks_dir(home, lineage), rules, found)
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json") for each in found], indent=1))
    else:
        for table in yardstick_tables(found):
            Console().print(table)
    if uri := Settings().tracking_uri:
        with _kept("what was computed is kept, the same command catches up"):
            typer.echo(f"MLflow: {track_yardsticks(uri, lineage, rules, found)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def play(
    player: Annotated[str, typer.Argument(help=STRONGER_HELP)] = "go9",
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

    from zero.evaluation.player_choice import choose_player
    from zero.games.position import BLACK, WHITE
    from zero.interop.terminal.game import play_in_terminal
    from zero.players.build import open_session

    home = home_dir()
    chosen = choose_player(home, player, "play", _to_stderr)
    session, rules = open_session(home, chosen, size, komi, seed, leaves)
    people = {"black": (BLACK,), "white": (WHITE,), "both": (BLACK, WHITE)}[colour]
    try:
        play_in_terminal(session, rules, Console(highlight=False), people)
    finally:
        session.close()


@app.command(rich_help_panel=PLAYERS)
def gtp(
    player: Annotated[str, typer.Argument(help=STRONGER_HELP)] = "go9",
    size: Annotated[int | None, typer.Option(help="First board, for players without a network.")] = None,
    komi: Annotated[float | None, typer.Option(help="First komi; by default that of the player's parameters.")] = None,
    leaves: Annotated[int, typer.Option(min=1, help="Leaves judged at once: more are faster and weaker.")] = 4,
    seconds: Annotated[float | None, typer.Option(help="Limit of a move, with a PUCT root.")] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 1,
) -> None:
    """Speaks the Go Text Protocol, version 2, for Sabaki, Lizzie and other programs; `docs/play.md` says how."""
    from zero.evaluation.player_choice import choose_player
    from zero.interop.gtp.engine import Engine
    from zero.interop.gtp.serve import serve_gtp
    from zero.players.build import open_session

    home = home_dir()
    chosen = choose_player(home, player, "gtp", _to_stderr)
    session, rules = open_session(home, chosen, size, komi, seed, leaves, seconds)
    try:
        serve_gtp(sys.stdin, sys.stdout, lambda interrupted: Engine(session, rules, interrupted))
    finally:
        session.close()

"""Commands for players: matches, ratings, held-out evaluation, games with a person, GTP."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from zero.cli.app import (
    PLAYERS,
    Json,
    Lineage,
    app,
    complete_lineage,
    complete_player,
    note,
    show,
    tracking_is_optional,
)
from zero.config.settings import home_dir, tracking_uri
from zero.errors import ParamsError

PLAYER_HELP = (
    "`go9`, `go9/gen-0012,simulations=800`, `raw:go9`, `shipped:go9`, a weight file, `models:/zero-go9@champion`, "
    "`gnugo:10`, `leelaz:weights.txt`, `gtp:COMMAND`, `rollout:5000` or `random`."
)
CHOSEN_HELP = (
    f"{PLAYER_HELP} `go9` starts the lineage's champion or the shipped player, the one of the higher generation."
)
Openings = Annotated[int, typer.Option(min=0, help="Random moves at the start, the same for two games.")]
Seed = Annotated[int, typer.Option(help="Seed of openings, searches and engines.")]
Komi = Annotated[float | None, typer.Option(help="Komi; by default that of the player's parameters.")]
Size = Annotated[int | None, typer.Option(help="Board size; by default that of the player's parameters.")]
AtOnce = Annotated[int, typer.Option(min=1, help="Games in play at the same time.")]
Lineages = Annotated[
    list[str], typer.Argument(metavar="LINEAGE...", help="Names of lineages.", autocompletion=complete_lineage)
]
NUM_LEAVES = 4
"""Leaves per network call in a game with a person or a program: more are faster and weaker."""


@app.command(rich_help_panel=PLAYERS)
def match(
    first: Annotated[str, typer.Argument(help=PLAYER_HELP, autocompletion=complete_player)],
    second: Annotated[
        str, typer.Argument(help="The other player, in the same format.", autocompletion=complete_player)
    ],
    games: Annotated[int, typer.Option(min=2, help="Games, an even number: half with each colour.")] = 400,
    openings: Openings = 0,
    seed: Seed = 1,
    komi: Komi = None,
    size: Size = None,
    at_once: AtOnce = 32,
    out: Annotated[Path | None, typer.Option(help="Folder of the match; by default one below .zero/matches.")] = None,
    as_json: Json = False,
) -> None:
    """Plays a match between two players. The same command continues an interrupted match.

    Each game is written when it is over. A player that fails forfeits the game, and the match continues. At the end
    the command writes the result, all games as SGF and, if `make up` or `MLFLOW_TRACKING_URI` gives a server, a run in
    MLflow.
    """
    from zero.evaluation.match import match_lines, run_match, track_matches
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("match", "games") as progress:
        played = run_match(
            home,
            (first, second),
            num_games=games,
            opening_moves=openings,
            seed=seed,
            komi=komi,
            size=size,
            games_at_once=at_once,
            folder=out,
            progress=progress,
        )
    show(played.table, as_json, lines=match_lines(played.table, played.folder))
    if uri := tracking_uri(home):
        with tracking_is_optional("the match is on disk; run the same command again later"):
            typer.echo(f"MLflow: {track_matches([played.folder], uri)[0]}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def tournament(
    players: Annotated[
        list[str], typer.Argument(metavar="PLAYER...", help=PLAYER_HELP, autocompletion=complete_player)
    ],
    games: Annotated[int, typer.Option(min=2, help="Games of each match, an even number.")] = 100,
    openings: Openings = 4,
    seed: Seed = 1,
    komi: Komi = None,
    size: Size = None,
    at_once: AtOnce = 32,
    as_json: Json = False,
) -> None:
    """Plays a round robin: a match between every two players, and ratings with intervals.

    The same command continues an interrupted tournament; matches that were played before are not played again. A match
    that fails is listed, and the others are played.
    """
    from zero.config.settings import STATE_FOLDER
    from zero.evaluation.match import MATCHES_DIR, track_matches
    from zero.evaluation.tournament import play_tournament, tournament_lines, tournament_tables, write_tournament
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("tournament", "games") as progress:
        played = play_tournament(
            home,
            players,
            games,
            opening_moves=openings,
            seed=seed,
            komi=komi,
            size=size,
            games_at_once=at_once,
            progress=progress,
        )
    folder = write_tournament(home, played)
    show(played, as_json, tournament_tables(played), [*tournament_lines(played), f"result: {folder}"])
    if uri := tracking_uri(home):
        with tracking_is_optional("the matches are on disk; run the same command again later"):
            track_matches([home / STATE_FOLDER / MATCHES_DIR / pairing.folder for pairing in played.pairings], uri)


@app.command(rich_help_panel=PLAYERS)
def elo(
    lineage: Lineage,
    games: Annotated[
        int, typer.Option(min=0, help="Games to add between the players whose games are most informative.")
    ] = 0,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Opponent in added games, such as shipped:go9; repeatable. Default: random, and GNU Go or rollouts."
        ),
    ] = None,
    simulations: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Simulations per move of added games, by default those of gating; the curve has these players.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Rates all champions of a lineage and fixed opponents, with intervals; see docs/strength.md.

    Gating matches of promoted challengers count, and finished matches with a champion or without a network. With
    `--games` it plays more matches first; the same command continues an interrupted one.
    """
    from zero.evaluation.ladder import lineage_ladder
    from zero.evaluation.ladder_output import ladder_lines, ladder_tables, track_ladder, write_ladder
    from zero.evaluation.scheduling import play_schedule
    from zero.progress import progress_of

    home = home_dir()
    if against and not games:
        raise ParamsError(f"--against {against[0]} has no effect without games; give --games too, such as --games 100")
    if games:
        with progress_of("elo", "games") as progress:
            for _ in play_schedule(home, lineage, games, against or None, simulations, progress):
                pass
    ladder = lineage_ladder(home, lineage, simulations)
    path = write_ladder(home, ladder)
    show(ladder, as_json, ladder_tables(ladder), [*ladder_lines(ladder), f"ladder: {path}"])
    if uri := tracking_uri(home):
        with tracking_is_optional(f"write it later with `zero elo {lineage}`"):
            typer.echo(f"MLflow: {track_ladder(home, uri, ladder)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def evaluate(
    lineage: Lineage,
    dataset: Annotated[
        Path | None, typer.Option(help="Dataset whose test split is evaluated, instead of the lineage's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluates the networks of each generation on held-out games; see docs/strength.md.

    The games are self-play of the same and of later generations, games of GNU Go, and the test split of a dataset. Only
    missing results are computed, in seconds per generation; no games are played.
    """
    from rich.console import Console

    from zero.evaluation.held_out import backfill, evaluation_table, track_evaluation
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("evaluate", "networks") as progress:
        results = backfill(home, lineage, progress, dataset)
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json") for each in results], indent=1))
    else:
        Console().print(evaluation_table(results))
    if uri := tracking_uri(home):
        with tracking_is_optional(f"write it later with `zero evaluate {lineage}`"):
            typer.echo(f"MLflow: {track_evaluation(uri, lineage, results)}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def compare(
    lineages: Lineages,
    games: Annotated[int, typer.Option(min=2, help="Games of each match, an even number.")] = 100,
    openings: Openings = 4,
    simulations: Annotated[
        int | None, typer.Option(min=0, help="Simulations per move; by default those of gating. 0: the raw networks.")
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Dataset whose test split is used, instead of each lineage's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compares the newest champions of lineages: ratings of a round robin, and predictions of held-out games.

    Use it to compare architectures (an ablation), parameters or seeds. The same command continues an interrupted one.
    """
    from zero.evaluation.comparison import compare as compare_lineages
    from zero.evaluation.comparison import comparison_table, write_comparison
    from zero.evaluation.tournament import tournament_lines
    from zero.progress import progress_of
    from zero.tracking.backfill import comparison_url

    home = home_dir()
    with progress_of("compare", "games") as progress:
        found = compare_lineages(home, lineages, games, openings, simulations, dataset, progress)
    folder = write_comparison(home, found)
    lines = [*tournament_lines(found.tournament), f"table and picture: {folder}"]
    show(found, as_json, [comparison_table(found)], lines)
    if uri := tracking_uri(home):
        with tracking_is_optional("the comparison is on disk"):
            generations = [(each.lineage, each.generation) for each in found.networks]
            typer.echo(f"training curves in MLflow: {comparison_url(uri, generations, 'training')}", err=as_json)


@app.command(rich_help_panel=PLAYERS)
def curves(
    lineages: Lineages,
    over: Annotated[Literal["hours", "games", "generations"], typer.Option(help="Horizontal axis.")] = "hours",
    simulations: Annotated[
        int | None, typer.Option(min=0, help="Simulations of the rated champions; by default the most frequent number.")
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Dataset whose test split is predicted, instead of each lineage's own.")
    ] = None,
    spread: Annotated[
        bool, typer.Option("--range", help="Draw the range over the lineages, for several seeds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Draws rating, accuracy of moves and error of outcomes over a training, as in figure 3 of the paper.

    Ratings are those of `zero elo`. Held-out games are the test split of a dataset, games of GNU Go on 9x9, or else the
    self-play of the next generation; missing results of `zero evaluate` are computed.
    """
    from zero.evaluation.curves import curves_table, lineage_curves, write_curves
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("curves", "networks") as progress:
        found = lineage_curves(home, lineages, simulations, dataset, progress)
    folder = write_curves(home, found, over, spread)
    show(found, as_json, [curves_table(found)], [f"data and picture: {folder}"])


@app.command(rich_help_panel=PLAYERS)
def tune(
    player: Annotated[
        str,
        typer.Argument(
            help="A network that searches, such as `go9` or `go9,simulations=100`.", autocompletion=complete_player
        ),
    ],
    parameter: Annotated[str, typer.Argument(help="c_puct (PUCT root) or value_scale (Gumbel root).")],
    low: Annotated[float, typer.Argument(help="Lowest value.")],
    high: Annotated[float, typer.Argument(help="Highest value.")],
    games: Annotated[int, typer.Option(min=2, help="Games of all trials, those of earlier calls included.")] = 4000,
    per_trial: Annotated[int, typer.Option(min=2, help="Games of each trial, an even number.")] = 200,
    logarithmic: Annotated[bool, typer.Option("--log", help="Search the range by the logarithm of the value.")] = False,
    openings: Openings = 4,
    seed: Annotated[int, typer.Option(help="Seed of the search for values and of the matches.")] = 1,
    as_json: Json = False,
) -> None:
    """Tunes a search parameter of a player by matches against the player as it is, with a Gaussian process.

    It shows the response curve and whether a value is better than the player's own. The same command continues an
    interrupted one. No lineage is changed.

    `zero tune go9,root=puct c_puct 0.5 4 --log`
    """
    from zero.evaluation.match import track_matches
    from zero.evaluation.tuning import response_lines, trials_folders
    from zero.evaluation.tuning import tune as tune_player
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("tune", "games") as progress:
        tuning, response, folder = tune_player(
            home, player, parameter, low, high, games, per_trial, logarithmic, openings, seed, progress
        )
    if as_json:
        typer.echo(json.dumps({"tuning": tuning.model_dump(mode="json"), "response": response.model_dump(mode="json")}))
    else:
        for line in [*response_lines(tuning, response), f"trials, curve and picture: {folder}"]:
            typer.echo(line)
    if uri := tracking_uri(home):
        with tracking_is_optional("the trials are on disk; run the same command again later"):
            track_matches(trials_folders(home, tuning.trials), uri)


@app.command(rich_help_panel=PLAYERS)
def openings(
    lineage: Lineage,
    moves: Annotated[int, typer.Option(min=1, help="Moves of a sequence.")] = 4,
    top: Annotated[int, typer.Option(min=1, help="Number of sequences of each kind.")] = 12,
    as_json: Json = False,
) -> None:
    """Shows the openings of a lineage's self-play over its generations, up to symmetry: a table and a plot."""
    from zero.evaluation.openings import lineage_openings, openings_tables, write_openings
    from zero.progress import progress_of

    home = home_dir()
    with progress_of("openings", "generations") as progress:
        found = lineage_openings(home, lineage, moves, top, progress)
    folder = write_openings(home, found)
    show(found, as_json, openings_tables(found), [f"data and picture: {folder}"])


@app.command(rich_help_panel=PLAYERS)
def play(
    player: Annotated[str, typer.Argument(help=CHOSEN_HELP, autocompletion=complete_player)] = "go9",
    colour: Annotated[
        Literal["black", "white", "both"], typer.Option(help="Your colour; with both the player gives hints.")
    ] = "black",
    size: Annotated[int | None, typer.Option(help="Board size, for players without a network.")] = None,
    komi: Komi = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Plays a game with you in the terminal; type `help` there for the commands."""
    from rich.console import Console

    from zero.games.position import BLACK, WHITE
    from zero.interop.terminal import TerminalGame
    from zero.players.build import open_session
    from zero.players.player_choice import choose_player
    from zero.players.spec import parse_player

    check_streams("play")
    home = home_dir()
    spec = choose_player(home, parse_player(player), "play", note)
    session, rules = open_session(home, spec, size, komi, seed, NUM_LEAVES)
    people = {"black": (BLACK,), "white": (WHITE,), "both": (BLACK, WHITE)}[colour]
    with closing(session):
        TerminalGame(session, rules, Console(highlight=False), people).run()


@app.command(rich_help_panel=PLAYERS)
def gtp(
    player: Annotated[str, typer.Argument(help=CHOSEN_HELP, autocompletion=complete_player)] = "go9",
    size: Annotated[int | None, typer.Option(help="Size of the first board, for players without a network.")] = None,
    komi: Annotated[float | None, typer.Option(help="First komi; by default that of the player's parameters.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Time limit per move. The search also ends at its simulations.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Serves the Go Text Protocol, version 2, for Sabaki, Lizzie and other programs; see docs/play.md."""
    from zero.interop.gtp import serve_gtp
    from zero.players.build import open_session
    from zero.players.player_choice import choose_player
    from zero.players.spec import parse_player

    check_streams("gtp")
    home, spec = home_dir(), parse_player(player)
    if seconds is not None and not spec.has_network:
        raise ParamsError(
            f"--seconds {seconds:g} has no effect on {player!r}, which has no network; leave it out, or give a player "
            "with a network"
        )
    spec = choose_player(home, spec, "gtp", note)
    session, rules = open_session(home, spec, size, komi, seed, NUM_LEAVES, seconds)
    with closing(session):
        serve_gtp(session, rules, sys.stdin, sys.stdout)


def check_streams(command: str) -> None:
    """Checks that standard input and output are open: a program that starts another one can leave them out.

    Raises:
      ParamsError: one of them is closed.
    """
    if sys.stdin is None or sys.stdout is None:
        raise ParamsError(f"`zero {command}` needs standard input and output, and one is closed; start it with both")

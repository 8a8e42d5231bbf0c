"""Tunes a search parameter of a player by matches (`zero tune`), as the paper tuned c_puct (Methods).

A trial is a match of the player with another value against the player as it is. Optuna's Gaussian-process sampler
chooses the values: after a few at equal distances, those that the trials so far promise the most of. At the end a
Gaussian process with the known noise of each match (scikit-learn) gives the response curve and its best value.

Each value depends on the trials before it alone. They are in a file, so an interrupted call continues with the same
values. Nothing of a lineage is changed; `zero branch` and the parameters of a lineage take the value.
"""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from zero.config.settings import STATE_FOLDER
from zero.errors import ParamsError
from zero.evaluation.match import MATCHES_DIR, FinishedMatch, results_dir, run_match
from zero.evaluation.plots import png_of
from zero.players.build import common_game, resolve_player
from zero.players.networks import ResolvedNetwork, resolve_network
from zero.players.spec import SEARCH_OPTIONS, parse_player
from zero.progress import Progress, part_of
from zero.statistics import NORMAL_95
from zero.storage.files import canonical_json, read_manifest, sha256_bytes, write_atomic, write_manifest
from zero.storage.manifests import Manifest, Sha256

PARAMETERS = ("c_puct", "value_scale")
"""Search parameters that are real numbers."""
TUNINGS_DIR, TUNING_FILE, CURVE_FILE, PLOT_FILE = "tunings", "tuning.json", "curve.json", "curve.png"
FIRST_TRIALS = 5
"""Trials at equal distances over the range, before the sampler chooses."""
MAX_SEED = 2**31
"""The sampler takes the seed plus the number of the trial, below 2^32."""
DIGITS = 4
"""Significant digits of a value."""
CURVE_POINTS = 101
WIDTH, HEIGHT, DPI = 5.6, 4.0, 120
"""Size of the picture in inches, and dots per inch."""


class TuningSpec(Manifest):
    """Everything that the values of the trials depend on, beside the results of the matches."""

    player: str
    """Spec of the player, see `zero.players.spec`."""
    weights: Sha256
    settings: Sha256
    """Digest of the game and of the player's settings: `player` leaves some of them to a parameters file."""
    parameter: str
    low: float
    high: float
    is_logarithmic: bool
    """True: the range is searched by the logarithm of the value."""
    games_per_trial: int
    opening_moves: int
    seed: int


class Trial(Manifest):
    """A match of the player with a value against the player as it is."""

    value: float
    score: float
    """Points per game of the changed player."""
    unique_games: int
    folder: str
    """Name of the match's folder below `.zero/matches`."""


class Tuning(Manifest):
    """The trials so far."""

    spec: TuningSpec
    trials: tuple[Trial, ...]


class ResponsePoint(Manifest):
    """The score that is expected of a value."""

    value: float
    score: float
    low: float
    """95 % interval."""
    high: float


class Response(Manifest):
    """The result of a tuning."""

    default: float
    """The value that the player has without a change."""
    best: ResponsePoint
    """The highest point of the curve."""
    at_default: ResponsePoint
    """The curve at the player's own value, where the true score is one half."""
    curve: tuple[ResponsePoint, ...]


def tune(
    home: Path,
    player: str,
    parameter: str,
    low: float,
    high: float,
    num_games: int,
    games_per_trial: int = 200,
    is_logarithmic: bool = False,
    opening_moves: int = 4,
    seed: int = 1,
    progress: Progress | None = None,
) -> tuple[Tuning, Response, Path]:
    """Plays trials until this tuning has `num_games` games, including those of earlier calls.

    Args:
      home: the project's folder.
      player: spec of a network that searches.
      parameter: one of `PARAMETERS`.
      low: lowest value.
      high: highest value.
      num_games: games of all trials.
      games_per_trial: games of each match, an even number.
      is_logarithmic: see `TuningSpec`.
      opening_moves: random moves at the start of each pair of games.
      seed: of the sampler and the matches.
      progress: receives (games done, all games).

    Returns:
      The trials, the response curve, and the folder with both and the picture.

    Raises:
      ParamsError: the player, the parameter, the range or a number of games cannot be used.
      ZeroError: a match cannot be played. Finished trials are kept.
    """
    spec, default, network = _spec(
        home, player, parameter, (low, high), (num_games, games_per_trial), is_logarithmic, opening_moves, seed
    )
    folder = results_dir(home, TUNINGS_DIR, spec)
    tuning = (
        read_manifest(folder, Tuning, TUNING_FILE) if (folder / TUNING_FILE).exists() else Tuning(spec=spec, trials=())
    )
    num_trials = num_games // games_per_trial
    while (number := len(tuning.trials)) < num_trials:
        value = next_value(tuning)
        changed, unchanged = (
            resolve_player(home, parse_player(text), network=network)
            for text in (f"{player},{parameter}={value:g}", player)
        )
        played = run_match(
            home,
            (changed, unchanged),
            games_per_trial,
            opening_moves,
            seed + number,  # equal values then give different games
            progress=part_of(progress, number * games_per_trial, num_trials * games_per_trial),
        )
        tuning = tuning.model_copy(update={"trials": (*tuning.trials, _trial(value, played))})
        write_manifest(folder, tuning, TUNING_FILE)
    response = response_of(tuning, default)
    write_manifest(folder, response, CURVE_FILE)
    write_atomic(folder / PLOT_FILE, response_png(tuning, response))
    return tuning, response, folder


def next_value(tuning: Tuning) -> float:
    """The value of the next trial; it depends only on the earlier trials."""
    import optuna  # seconds

    spec, number = tuning.spec, len(tuning.trials)
    if number < FIRST_TRIALS:
        return _spaced(spec, FIRST_TRIALS)[number]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.GPSampler(seed=spec.seed + number, n_startup_trials=0, deterministic_objective=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    values = {"value": optuna.distributions.FloatDistribution(spec.low, spec.high, log=spec.is_logarithmic)}
    for trial in tuning.trials:
        params = {"value": trial.value}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=values, value=trial.score))
    return _rounded(spec, study.ask(values).params["value"])


def response_of(tuning: Tuning, default: float) -> Response:
    """The response curve: the posterior of a Gaussian process over the trials, with the variance of each match."""
    process = _fitted(tuning)
    curve = _points(process, tuning.spec, _spaced(tuning.spec, CURVE_POINTS))
    best = max(curve, key=lambda point: point.score)
    (at_default,) = _points(process, tuning.spec, [default])
    return Response(default=default, best=best, at_default=at_default, curve=tuple(curve))


def response_lines(tuning: Tuning, response: Response) -> list[str]:
    """The result in words."""
    spec, best = tuning.spec, response.best
    games = sum(trial.unique_games for trial in tuning.trials)
    lines = [
        f"{len(tuning.trials)} trials with {games} unique games against {spec.player}, whose {spec.parameter} is "
        f"{response.default:g}",
        f"the curve is highest at {spec.parameter} = {best.value:g}: {best.score:.1%} (95 % interval {best.low:.1%} "
        f"to {best.high:.1%})",
    ]
    if best.low > 0.5:
        lines.append(f"this is better than {response.default:g}; a match of 400 games would confirm it")
        if best in (response.curve[0], response.curve[-1]):
            lines.append(f"{best.value:g} is an end of the range; values beyond it may score higher")
    else:
        lines.append(f"no value is shown to be better than {response.default:g}")
    return lines


def response_png(tuning: Tuning, response: Response) -> bytes:
    """The trials with their intervals, the curve with its band, and the player's own value, as a PNG."""
    figure = Figure((WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    x = [point.value for point in response.curve]
    low, high = ([100 * getattr(point, name) for point in response.curve] for name in ("low", "high"))
    axes.fill_between(x, low, high, alpha=0.2, lw=0)
    axes.plot(x, [100 * point.score for point in response.curve], lw=1)
    spread = [100 * NORMAL_95 * math.sqrt(_variance(trial)) for trial in tuning.trials]
    scores = [100 * trial.score for trial in tuning.trials]
    axes.errorbar([trial.value for trial in tuning.trials], scores, spread, fmt="o", ms=3, lw=0.8, color="C1")
    axes.axhline(50, color="black", lw=0.8, ls="--")
    axes.axvline(response.default, color="black", lw=0.8, ls=":")
    if tuning.spec.is_logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=tuning.spec.parameter, ylabel=f"score against {response.default:g} (%)", title=tuning.spec.player)
    axes.grid(alpha=0.3)
    return png_of(figure)


def _spec(
    home: Path,
    player: str,
    parameter: str,
    bounds: tuple[float, float],
    games: tuple[int, int],
    is_logarithmic: bool,
    opening_moves: int,
    seed: int,
) -> tuple[TuningSpec, float, ResolvedNetwork]:
    """The specification, the player's own value, and its network, which all matches use.

    Raises:
      ParamsError: see `tune`.
    """
    (low, high), (num_games, games_per_trial) = bounds, games
    if parameter not in PARAMETERS:
        raise ParamsError(f"{parameter!r} cannot be tuned; choose one of {', '.join(PARAMETERS)}")
    if not 0.0 < low < high < math.inf:
        raise ParamsError(
            f"the range {low:g} to {high:g} is empty, reversed or not positive; give a lower and a higher value"
        )
    if games_per_trial % 2 or games_per_trial < 2 or num_games < FIRST_TRIALS * games_per_trial:
        raise ParamsError(
            f"{num_games} games in trials of {games_per_trial}: a trial needs an even number, and a tuning at least "
            f"{FIRST_TRIALS} trials"
        )
    asked = parse_player(player)
    network = resolve_network(home, asked.argument) if asked.has_network else None
    resolved = resolve_player(home, asked, network=network)
    setup = resolved.network
    if network is None or setup is None or not setup.num_simulations:
        raise ParamsError(f"{player!r} does not search with a network; give one, such as go9,simulations=100")
    if SEARCH_OPTIONS[parameter] != setup.search.root:
        raise ParamsError(
            f"a {setup.search.root} root does not use {parameter}; add root={SEARCH_OPTIONS[parameter]} to the player"
        )
    default = float(getattr(setup.search, parameter))
    if not low <= default <= high:
        raise ParamsError(
            f"the player's own {parameter}, {default:g}, is outside of {low:g} to {high:g}; widen the range"
        )
    if not 0 <= seed < MAX_SEED:
        raise ParamsError(f"seed = {seed}: give a whole number from 0 to {MAX_SEED - 1}")
    for value in bounds:  # an end that the search does not accept is an error before the first game
        resolve_player(home, parse_player(f"{player},{parameter}={value:g}"), network=network)
    game = common_game(home, [resolved]).model_dump(mode="json")
    spec = TuningSpec(
        player=player,
        weights=str(setup.id.settings["weights"]),
        settings=sha256_bytes(canonical_json({"game": game, "player": setup.id.settings})),
        parameter=parameter,
        low=low,
        high=high,
        is_logarithmic=is_logarithmic,
        games_per_trial=games_per_trial,
        opening_moves=opening_moves,
        seed=seed,
    )
    return spec, default, network


def _trial(value: float, played: FinishedMatch) -> Trial:
    result = played.table.result
    return Trial(value=value, score=result.score, unique_games=result.unique_games, folder=played.folder.name)


def _variance(trial: Trial) -> float:
    """Variance of a trial's score, with one game more of each result, so that it is never 0."""
    games = trial.unique_games
    share = (trial.score * games + 1) / (games + 2)
    return share * (1 - share) / games


def _spaced(spec: TuningSpec, num: int) -> list[float]:
    """Values at equal distances over the range."""
    space = np.geomspace if spec.is_logarithmic else np.linspace
    return [_rounded(spec, value) for value in space(spec.low, spec.high, num)]


def _rounded(spec: TuningSpec, value: float) -> float:
    """The value with `DIGITS` significant digits, inside the range."""
    return min(max(float(f"{value:.{DIGITS}g}"), spec.low), spec.high)


def place_of(spec: TuningSpec, value: float) -> float:
    """Position of a value in the range, between 0 and 1."""
    low, high, found = np.log((spec.low, spec.high, value)) if spec.is_logarithmic else (spec.low, spec.high, value)
    return float((found - low) / (high - low))


def _fitted(tuning: Tuning) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    # A smooth function of the position around one half, where the player's own value is.
    kernel = ConstantKernel(0.01, (1e-5, 0.25)) * RBF(0.3, (0.1, 2.0))
    noise = np.array([_variance(trial) for trial in tuning.trials])
    process = GaussianProcessRegressor(kernel, alpha=noise, n_restarts_optimizer=4, random_state=tuning.spec.seed)
    places = np.array([[place_of(tuning.spec, trial.value)] for trial in tuning.trials])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a flat curve is fitted at the edge of the bounds
        return process.fit(places, np.array([trial.score - 0.5 for trial in tuning.trials]))


def _points(process: Any, spec: TuningSpec, values: Sequence[float]) -> list[ResponsePoint]:
    means, deviations = process.predict([[place_of(spec, value)] for value in values], return_std=True)
    return [
        ResponsePoint(
            value=value,
            score=0.5 + float(mean),
            low=0.5 + float(mean - NORMAL_95 * deviation),
            high=0.5 + float(mean + NORMAL_95 * deviation),
        )
        for value, mean, deviation in zip(values, means, deviations, strict=True)
    ]


def trials_folders(home: Path, trials: Sequence[Trial]) -> list[Path]:
    """Folders of the matches of these trials."""
    return [home / STATE_FOLDER / MATCHES_DIR / trial.folder for trial in trials]

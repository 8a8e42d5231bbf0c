"""Self-play of 9x9 Go on one core, compared with `pgx` and `mctx`: same network, games and simulations."""

from importlib.util import find_spec

from benchmarks.harness import Child, Context, Measure, Measured, against, not_measured, rate
from benchmarks.results import Detail, Sample
from benchmarks.selfplay import SIMULATIONS, SelfplayWork
from benchmarks.setting import GO9, params_of, residual_tower

NUM_SIMULATIONS = 20
NUM_GAMES = 64
PACKAGES = ("jax", "mctx", "pgx")
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def prepare(arguments: str) -> tuple[Measure, ...]:
    """The measure `selfplay` of a `SelfplayWork` for pgx: evaluations per second."""
    params = SelfplayWork.model_validate_json(arguments).params
    from benchmarks.pgx_games import PgxGames, jax_network
    from zero.network.weights import new_network

    network = jax_network(new_network(params.network, params.game, params.seed))
    selfplay = params.selfplay
    games = PgxGames(network, params.game.size, selfplay.num_slots, selfplay.num_simulations, params.seed)

    def run(seconds: float) -> Sample:
        evaluations = rate(games.step, seconds)
        simulations = evaluations * selfplay.num_simulations / (selfplay.num_simulations + 1)
        return Sample(
            figure=evaluations, details=(Detail(name="simulations of pgx", value=simulations, unit=SIMULATIONS),)
        )

    return (Measure("selfplay", run),)


def against_pgx(context: Context) -> Measured:
    """Evaluations per second of a 4x32 network."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        return not_measured(f"{', '.join(missing)} not installed (extra `test`)")
    work = SelfplayWork(
        params=params_of(
            GO9,
            context.profile,
            network=residual_tower(4, 32),
            selfplay={"num_simulations": NUM_SIMULATIONS, "num_slots": NUM_GAMES},
        )
    )
    core = context.cores[-1:]
    with Child("selfplay", work, core) as ours, Child("pgx", work, core, ONE_THREAD) as rival:
        return against(context, ours.side("selfplay"), rival.side("selfplay"))

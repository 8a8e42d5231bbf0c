"""Self-play with a network, compared with the same network alone at the same batch size."""

from collections.abc import Sequence
from functools import partial

from benchmarks.harness import Child, Context, Measure, Measured, against, not_measured
from benchmarks.results import Detail, Sample
from benchmarks.setting import GO9, GPU9, params_of, residual_tower
from zero.config.params import Params
from zero.evaluation.throughput import Games, network_rate, selfplay_settings
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.storage.manifests import Manifest

EVALUATIONS, SIMULATIONS = "evaluations/s", "simulations/s"
PREPARING_SECONDS = 0.2


class SelfplayWork(Manifest):
    """Self-play with these parameters and the first network of their seed."""

    params: Params


def prepare(arguments: str) -> tuple[Measure, ...]:
    """The measures of a `SelfplayWork`: `raw` and `selfplay` (evaluations per second), `simulations` (of self-play)."""
    params = SelfplayWork.model_validate_json(arguments).params
    profile = params.profile
    prepare_torch(profile, profile.selfplay_threads)
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    rules = rules_of(params.game)
    evaluator = new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), profile)
    games = Games(
        rules,
        selfplay_settings(params),
        params.selfplay.num_slots,
        params.search.max_nodes,
        evaluator,
        profile.search_threads,
        profile.half_batches,
    )
    games.mix_ages()
    games.run(PREPARING_SECONDS)
    planes = games.planes()

    def raw(seconds: float) -> Sample:
        return Sample(figure=network_rate(rules, evaluator, planes, seconds))

    def selfplay(seconds: float) -> Sample:
        counts = games.run(seconds)
        detail = Detail(name="simulations in self-play", value=counts.simulations, unit=SIMULATIONS)
        return Sample(figure=counts.evaluations, details=(detail,))

    def simulations(seconds: float) -> Sample:
        counts = games.run(seconds)
        detail = Detail(name="evaluations in self-play", value=counts.evaluations, unit=EVALUATIONS)
        return Sample(figure=counts.simulations, details=(detail,))

    return Measure("raw", raw), Measure("selfplay", selfplay), Measure("simulations", simulations)


def against_raw(context: Context, num_blocks: int, num_channels: int) -> Measured:
    """Self-play on 9x9 as in go9-paper, against the network alone."""
    params = params_of(GO9, context.profile, network=residual_tower(num_blocks, num_channels))
    with Child("selfplay", SelfplayWork(params=params), context.cores[-1:]) as child:
        return against(context, child.side("selfplay"), child.side("raw"))


def two_processes(context: Context) -> Measured:
    """Two processes on one core each at the same time, against the mean of both one after the other."""
    if len(context.cores) < 2:
        return not_measured("one core only")
    work = SelfplayWork(params=params_of(GO9, context.profile, network=residual_tower(4, 32)))
    with Child("selfplay", work, context.cores[-1:]) as first, Child("selfplay", work, context.cores[-2:-1]) as second:
        children = (first, second)
        for child in children:
            child.wait_until_ready()
        return against(context, partial(together, children, "selfplay"), partial(one_by_one, children, "selfplay"))


def on_gpu(context: Context) -> Measured:
    """Self-play on 9x9 with a 10x128 network as in go9-gpu, against the network alone, on one GPU."""
    if not _has_gpu():
        return not_measured("no GPU")
    preset = params_of(GPU9, None, network=residual_tower(10, 128, 128))
    with Child("selfplay", SelfplayWork(params=preset), context.cores) as child:
        return against(context, child.side("selfplay"), child.side("raw"))


def together(children: Sequence[Child], measure: str, seconds: float) -> Sample:
    """Sum of the figures of children that work at the same time."""
    running = [child.start(measure, seconds) for child in children]
    figures = [child.finish(each).figure for child, each in zip(children, running, strict=True)]
    return Sample(figure=sum(figures))


def one_by_one(children: Sequence[Child], measure: str, seconds: float) -> Sample:
    """Mean of the figures of children that work one after the other."""
    return Sample(figure=sum(child.side(measure)(seconds).figure for child in children) / len(children))


def _has_gpu() -> bool:
    """True if PyTorch finds a GPU. This process does no other work with it."""
    import torch

    return torch.cuda.is_available()

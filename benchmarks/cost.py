"""`python -m benchmarks.cost go9-gpu`: what a preset costs on paper: operations, time and memory of its generations.

All figures are computed, most of them from the preset and its real network. The rates of a GPU are those of one
generation of `go9-gpu` on an H100. The same computation with the rates of two CPU cores gives the cost of `go9-laptop`,
which was measured; docs/gpu.md compares the two.
"""

from typing import Annotated, NamedTuple

import typer

from benchmarks.gpu import PASSES
from benchmarks.gpu_work import network_flops
from benchmarks.results import markdown, run_command
from benchmarks.search import arrays_of, new_part
from zero.config.auto import resolve_auto
from zero.config.params import GatingParams, Params, ProfileParams, SelfplayParams, parse_params, preset_text
from zero.errors import ParamsError
from zero.games.rules import rules_of
from zero.network.profile import this_machine
from zero.stages.verification import games_to_finish

MEBIBYTE, MILLION, MINUTE = 2**20, 1e6, 60

# Measured with `go9-laptop`, the means of 18 generations (RESULTS.md, 2026-11-26).
MOVES_PER_POINT = 1.28
"""Moves of a game that is played to its end, per point of the board."""
MATCH_RATE = 0.74
"""Evaluations a second of a match over those of self-play. A match has smaller batches, since two networks share it."""
FIRST_ENDS = 0.8
"""Length of the game that ends first of twenty, over the mean length."""
EDGES_PER_POINT = 0.45
"""Actions with a share of the policy target, per point of the board."""
POSITION_BYTES, EDGE_BYTES = 22, 4
"""Bytes of a position and of an edge in the window, see `zero.data.records.GameColumns`."""


class MachineRates(NamedTuple):
    """The rates of a machine. A training sample has three times the operations of an evaluation."""

    selfplay_flops: float  # operations a second in self-play
    training_flops: float  # operations a second in training
    step_seconds: float  # the shortest time of a training step
    other_seconds: float  # of a generation, outside of evaluations and steps


CPU = MachineRates(2 * 19_525 * 12.79e6, 4_473 * PASSES * 12.26e6, 0.0, 12.0)
"""Two Zen 5 cores with bf16. `make bench`: 19,525 evaluations/s a core with a network of 12.79 MFLOP. Training: 4,473
samples/s of `go9-laptop`, whose network has 12.26 MFLOP."""
EVALUATIONS, NETWORK_FLOPS = 112_000, 0.455249e9
"""Evaluations a second of `go9-gpu` in self-play, and the operations of one: 7.5 million in 67 s, with the start of the
processes and the end of each shard, when few games are left. A benchmark without them had 241,000 to 261,000."""
GPU = MachineRates(EVALUATIONS * NETWORK_FLOPS, 100_403 * PASSES * NETWORK_FLOPS, 0.008, 62.0)
"""Measured on an H100 (RESULTS.md, 2026-11-27): these evaluations; training at batch 1,024; 3,000 steps of batch 256
in 28 s, of which 4 s are an assumed start; and what is missing from the 172 s of the generation."""


class Plan(NamedTuple):
    """Where a preset runs, and for how many generations."""

    machine: MachineRates
    generations: int


PLANS = {
    "go9-laptop": Plan(CPU, 9),
    "go9-gpu": Plan(GPU, 6),
    "go13-gpu": Plan(GPU, 30),
    "go19-gpu-small": Plan(GPU, 47),
}
"""`go9-laptop` beat GNU Go level 10 with generation 9 of seed 11. The learning rates of the others fit their plans."""


class Cost(NamedTuple):
    """Cost of a generation."""

    flops: float  # operations of an evaluation
    moves: float  # of a game
    positions: float  # new positions
    samples: int  # of training
    rate: float  # evaluations a second in self-play
    selfplay_evaluations: float
    match_evaluations: float
    verification_evaluations: float
    selfplay_seconds: float
    training_seconds: float
    match_seconds: float
    verification_seconds: float
    other_seconds: float

    @property
    def seconds(self) -> float:
        """Time of a generation."""
        return sum(self[-5:])


class Bytes(NamedTuple):
    """Memory."""

    games: float  # trees, positions and records of a shard in play, on the host
    window: float  # games of a full window, on the host
    training: float  # what a training step keeps for its backward pass, on the GPU


def params_of(name: str) -> Params:
    """A preset, to be computed on the CPU.

    Raises:
      ParamsError: there is no plan for it.
    """
    if name not in PLANS:
        raise ParamsError(f"no plan for {name!r}; presets with a plan: {', '.join(PLANS)}")
    text = preset_text(name)
    return parse_params(resolve_auto(text, this_machine(text)), name).model_copy(update={"profile": ProfileParams()})


def cost(params: Params, machine: MachineRates) -> Cost:
    """Cost of a generation. Every game is played to its end, and every move gets all simulations."""
    selfplay, match, training = params.selfplay, params.gating, params.training
    flops, moves = network_flops(params), MOVES_PER_POINT * rules_of(params.game).num_points
    rate = machine.selfplay_flops / flops
    evaluations = {stage: stage.num_games * moves * stage.num_simulations for stage in (selfplay, match)}
    again = verification_evaluations(params, selfplay, moves) + verification_evaluations(params, match, moves)
    samples = training.num_steps * training.batch_size
    return Cost(
        flops=flops,
        moves=moves,
        positions=selfplay.num_games * moves,
        samples=samples,
        rate=rate,
        selfplay_evaluations=evaluations[selfplay],
        match_evaluations=evaluations[match],
        verification_evaluations=again,
        selfplay_seconds=evaluations[selfplay] / rate,
        training_seconds=max(
            samples * PASSES * flops / machine.training_flops, training.num_steps * machine.step_seconds
        ),
        match_seconds=evaluations[match] / (MATCH_RATE * rate),
        verification_seconds=again / rate,
        other_seconds=machine.other_seconds,
    )


def verification_evaluations(params: Params, stage: SelfplayParams | GatingParams, moves: float) -> float:
    """Evaluations of the re-execution check of a stage: one shard, until the first of its games have ended."""
    slots = min(stage.num_slots, stage.games_per_shard)
    rounds = max(1.0, games_to_finish(params.verification, stage.games_per_shard) / slots)
    return slots * rounds * FIRST_ENDS * moves * stage.num_simulations


def memory(params: Params) -> Bytes:
    """Memory of a shard in play, of a full window, and of a training step."""
    part, points = new_part(params, 1), rules_of(params.game).num_points
    slot, record = (sum(array.nbytes for array in arrays_of(x)) for x in ((part.slots, part.batch), part.records))
    positions = params.replay.window_games * MOVES_PER_POINT * points
    return Bytes(
        games=slot * params.selfplay.num_slots + record * params.selfplay.games_per_shard,
        window=positions * (POSITION_BYTES + EDGE_BYTES * EDGES_PER_POINT * points),
        training=(saved_bytes(params, 4) - saved_bytes(params, 2)) / 2 * params.training.batch_size,
    )


def saved_bytes(params: Params, batch: int) -> int:
    """Bytes of the tensors that PyTorch keeps for the backward pass of a batch, with layers in bf16."""
    import torch

    from zero.network.model import channels_last
    from zero.network.weights import new_network

    model = channels_last(new_network(params.network, params.game, params.seed)).train()
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    spec = model.spec
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        model.predict(torch.zeros(batch, spec.num_planes, spec.rows, spec.columns))
    return sum(storage.nbytes() for storage in kept.values())


def table(names: list[str], gpu: MachineRates = GPU) -> str:
    """The cost of presets in Markdown, one column each; `gpu` replaces the rates of the GPU."""
    columns = []
    for name in names:
        params, plan = params_of(name), PLANS[name]
        selfplay, match = params.selfplay, params.gating
        found, used = cost(params, gpu if plan.machine is GPU else plan.machine), memory(params)
        columns.append(
            {
                "operations of an evaluation": f"{found.flops / 1e9:.3f} GFLOP",
                "evaluations/s in self-play": f"{found.rate:,.0f}",
                "games, moves of a game": f"{selfplay.num_games:,}, {found.moves:.0f}",
                "simulations in self-play, in a match": f"{selfplay.num_simulations}, {match.num_simulations}",
                "evaluations of self-play": f"{found.selfplay_evaluations / MILLION:.1f} M",
                "evaluations of match, verification": f"{found.match_evaluations / MILLION:.1f} M, "
                f"{found.verification_evaluations / MILLION:.1f} M",
                "samples of training, per new position": f"{found.samples / MILLION:.2f} M, "
                f"{found.samples / found.positions:.1f}",
                "self-play": f"{found.selfplay_seconds:.0f} s",
                "training": f"{found.training_seconds:.0f} s",
                "match": f"{found.match_seconds:.0f} s",
                "verification": f"{found.verification_seconds:.0f} s",
                "all else": f"{found.other_seconds:.0f} s",
                "**one generation**": f"**{found.seconds:.0f} s**",
                "generations planned": f"{plan.generations}",
                "**time of the plan**": f"**{found.seconds * plan.generations / MINUTE:.0f} min**",
                "games, evaluations of the plan": f"{plan.generations * selfplay.num_games:,}, "
                f"{plan.generations * found.selfplay_evaluations / MILLION:,.0f} M",
                "memory of the games of a shard in play": f"{used.games / MEBIBYTE:,.0f} MiB",
                "memory of a full window": f"{used.window / MEBIBYTE:,.0f} MiB",
                "GPU memory of a training step": f"{used.training / MEBIBYTE:,.0f} MiB",
            }
        )
    rows = [(title, *(column[title] for column in columns)) for title in columns[0]]
    return markdown(("computed, not measured", *(f"`{name}`" for name in names)), rows)


def main(
    presets: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(PLANS)}.")],
    evaluations: Annotated[float, typer.Option(min=1.0, help="Evaluations/s of go9-gpu in self-play.")] = EVALUATIONS,
) -> None:
    """Prints the computed cost of presets."""
    typer.echo(table(presets, GPU._replace(selfplay_flops=evaluations * NETWORK_FLOPS)))


if __name__ == "__main__":
    run_command(main, "cost")

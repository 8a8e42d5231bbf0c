"""Self-play of 9x9 Go in JAX: rules of `pgx`, search of `mctx`, and the project's network with its weights.

It follows the AlphaZero example of pgx, but with the PUCT search of `mctx` instead of its Gumbel search, as in our
self-play. Only the child process of the row imports this module, because JAX is optional.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pgx
from pgx.experimental import auto_reset

from benchmarks.harness import Sides, rate
from benchmarks.results import Detail, Sample
from zero.config.params import Params
from zero.network.fold import fold
from zero.network.model import AlphaZeroNetwork
from zero.network.weights import new_network

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
"""Layout of planes, filters and result; channels last is the fastest layout on CPUs."""
COLOUR_PLANE = 16


def prepare(params: Params) -> Sides:
    """Side `selfplay`: evaluations per second."""
    network = jax_network(new_network(params.network, params.game, params.seed))
    num_simulations = params.selfplay.num_simulations
    games = PgxGames(network, params.game.size, params.selfplay.num_slots, num_simulations, params.seed)

    def run(seconds: float) -> Sample:
        evaluations = rate(games.step, seconds)
        simulations = evaluations * num_simulations / (num_simulations + 1)
        return Sample(evaluations, (Detail(name="simulations of pgx", value=simulations, unit="simulations/s"),))

    return {"selfplay": run}


class Layer(NamedTuple):
    """A fully connected layer, or a convolution with padding that keeps the board size."""

    weights: Any  # [in, out] or [S, S, in, out] float32
    bias: Any  # [out]


class JaxNetwork(NamedTuple):
    """A residual network with both heads; normalisations are folded into the convolutions."""

    stem: Layer
    blocks: list[tuple[Layer, Layer]]
    policy_reduce: Layer
    policy_output: Layer
    value_reduce: Layer
    value_hidden: Layer
    value_output: Layer


def jax_network(network: AlphaZeroNetwork) -> JaxNetwork:
    """The network as a function in JAX. It must have the architecture of the paper."""
    spec = network.spec.network
    assert spec.tower == "residual" and spec.heads == "joint" and not (spec.global_pooling or spec.pooled_heads)
    folded: Any = fold(network)
    points = network.spec.rows * network.spec.columns

    def convolution(module: Any) -> Layer:
        return Layer(jnp.asarray(module.weight.numpy().transpose(2, 3, 1, 0)), jnp.asarray(module.bias.numpy()))

    def linear(module: Any, points: int) -> Layer:
        """The inputs are `points` points in channels-last order; in PyTorch the channels come first."""
        weights = module.weight.numpy()  # [out, channels * points]
        reordered = weights.reshape(len(weights), -1, points).transpose(2, 1, 0).reshape(-1, len(weights))
        return Layer(jnp.asarray(np.ascontiguousarray(reordered)), jnp.asarray(module.bias.numpy()))

    stem, *blocks = folded.tower
    return JaxNetwork(
        stem=convolution(stem.first),
        blocks=[(convolution(block.first), convolution(block.second)) for block in blocks],
        policy_reduce=convolution(folded.policy_head.reduce),
        policy_output=linear(folded.policy_head.output, points),
        value_reduce=convolution(folded.value_head.reduce),
        value_hidden=linear(folded.value_head.hidden, points),
        value_output=linear(folded.value_head.output, 1),
    )


def apply_network(network: JaxNetwork, planes: Any) -> tuple[Any, Any]:
    """Planes [B, S, S, P] float32 -> policy logits [B, A], values [B] for the player to move."""

    def convolve(layer: Layer, x: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, layer.weights, (1, 1), "SAME", dimension_numbers=DIMENSIONS)
        return x + layer.bias

    relu = jax.nn.relu
    x = relu(convolve(network.stem, planes))
    for first, second in network.blocks:
        x = relu(x + convolve(second, relu(convolve(first, x))))
    policy = relu(convolve(network.policy_reduce, x)).reshape(len(x), -1)
    value = relu(convolve(network.value_reduce, x)).reshape(len(x), -1)
    hidden = relu(value @ network.value_hidden.weights + network.value_hidden.bias)
    values = jnp.tanh(hidden @ network.value_output.weights + network.value_output.bias)
    return policy @ network.policy_output.weights + network.policy_output.bias, values[:, 0]


class PgxGames:
    """Endless games in lock-step."""

    def __init__(self, network: JaxNetwork, size: int, num_games: int, num_simulations: int, seed: int) -> None:
        """Compiles the step and plays one move."""
        self.num_evaluations = num_games * (num_simulations + 1)
        self._network = network
        environment: Any = pgx.make(f"go_{size}x{size}")
        key, self._key = jax.random.split(jax.random.PRNGKey(seed))
        self._state = jax.jit(jax.vmap(environment.init))(jax.random.split(key, num_games))
        self._move = jax.jit(_mover(environment, num_games, num_simulations))
        self.step()

    def step(self) -> int:
        """Plays a move in every game; returns the evaluations: one per simulation and one for the root."""
        self._state, self._key = self._move(self._network, self._state, self._key)
        jax.block_until_ready(self._state)
        return self.num_evaluations


def planes_of(observation: Any) -> Any:
    """The project's planes from those of pgx, [B, S, S, P]. The last plane of pgx is 1 if White is to move."""
    planes = observation.astype(jnp.float32)
    return planes.at[..., COLOUR_PLANE].set(1.0 - planes[..., COLOUR_PLANE])


def _mover(environment: Any, num_games: int, num_simulations: int) -> Any:
    """A function (network, state, key) -> (state, key) that searches and plays a move in every game."""
    step, new_game = jax.vmap(environment.step), auto_reset(environment.step, environment.init)
    games = jnp.arange(num_games)

    def evaluate(network: JaxNetwork, state: Any) -> tuple[Any, Any]:
        """Logits [B, A], the lowest float for illegal actions; values [B], 0 if the game has ended."""
        logits, value = apply_network(network, planes_of(state.observation))
        logits = logits - logits.max(axis=-1, keepdims=True)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        return logits, jnp.where(state.terminated, 0.0, value)

    def simulate(network: JaxNetwork, _: Any, action: Any, state: Any) -> tuple[Any, Any]:
        player = state.current_player
        state = step(state, action)
        logits, value = evaluate(network, state)
        reward, discount = state.rewards[games, player], jnp.where(state.terminated, 0.0, -1.0)
        return mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value), state

    def move(network: JaxNetwork, state: Any, key: Any) -> tuple[Any, Any]:
        search_key, games_key, key = jax.random.split(key, 3)
        logits, value = evaluate(network, state)
        found = mctx.muzero_policy(
            params=network,
            rng_key=search_key,
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            recurrent_fn=simulate,
            num_simulations=num_simulations,
            invalid_actions=~state.legal_action_mask,
        )
        return jax.vmap(new_game)(state, found.action, jax.random.split(games_key, num_games)), key

    return move

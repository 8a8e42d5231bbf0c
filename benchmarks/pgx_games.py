"""Self-play of 9x9 Go in JAX: rules of `pgx`, search of `mctx`, and the project's network with its weights.

It follows the AlphaZero example of pgx, but with the PUCT search of `mctx` instead of its Gumbel search, as in our
self-play.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pgx
from pgx.experimental import auto_reset
from torch import nn

from zero.network.fold import fold
from zero.network.model import AlphaZeroNetwork

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
"""Layout of planes, filters and result; channels last is the fastest layout on CPUs."""


class Convolution(NamedTuple):
    """A convolution with padding that keeps the board size."""

    filters: Any  # [S, S, C_in, C_out] float32
    bias: Any  # [C_out]


class Linear(NamedTuple):
    """A fully connected layer."""

    weights: Any  # [in, out] float32
    bias: Any  # [out]


class JaxNetwork(NamedTuple):
    """A residual network with both heads; normalisations are folded into the convolutions."""

    stem: Convolution
    blocks: list[tuple[Convolution, Convolution]]
    policy_reduce: Convolution
    policy_output: Linear
    value_reduce: Convolution
    value_hidden: Linear
    value_output: Linear


def jax_network(network: AlphaZeroNetwork) -> JaxNetwork:
    """The network as a function in JAX. It must have the architecture of the paper."""
    spec = network.spec.network
    assert spec.tower == "residual" and spec.heads == "joint" and not (spec.global_pooling or spec.pooled_heads)
    folded: Any = fold(network)
    points = network.spec.rows * network.spec.columns
    stem, *blocks = folded.tower
    return JaxNetwork(
        stem=_convolution(stem.first),
        blocks=[(_convolution(block.first), _convolution(block.second)) for block in blocks],
        policy_reduce=_convolution(folded.policy_head.reduce),
        policy_output=_linear(folded.policy_head.output, points),
        value_reduce=_convolution(folded.value_head.reduce),
        value_hidden=_linear(folded.value_head.hidden, points),
        value_output=_linear(folded.value_head.output, 1),
    )


def apply_network(network: JaxNetwork, planes: Any) -> tuple[Any, Any]:
    """Planes [B, S, S, P] float32 -> policy logits [B, A], values [B] for the player to move."""
    x = jax.nn.relu(_convolve(network.stem, planes))
    for first, second in network.blocks:
        x = jax.nn.relu(x + _convolve(second, jax.nn.relu(_convolve(first, x))))
    policy = jax.nn.relu(_convolve(network.policy_reduce, x)).reshape(len(x), -1)
    value = jax.nn.relu(_convolve(network.value_reduce, x)).reshape(len(x), -1)
    hidden = jax.nn.relu(_apply(network.value_hidden, value))
    return _apply(network.policy_output, policy), jnp.tanh(_apply(network.value_output, hidden))[:, 0]


def _convolve(layer: Convolution, x: Any) -> Any:
    return jax.lax.conv_general_dilated(x, layer.filters, (1, 1), "SAME", dimension_numbers=DIMENSIONS) + layer.bias


def _apply(layer: Linear, x: Any) -> Any:
    return x @ layer.weights + layer.bias


def _convolution(module: nn.Conv2d) -> Convolution:
    assert module.bias is not None
    return Convolution(jnp.asarray(module.weight.numpy().transpose(2, 3, 1, 0)), jnp.asarray(module.bias.numpy()))


def _linear(module: nn.Linear, points: int) -> Linear:
    """The layer with its inputs in channels-last order, for `points` points."""
    weights = module.weight.numpy()  # [out, channels * points]
    reordered = weights.reshape(len(weights), -1, points).transpose(2, 1, 0).reshape(-1, len(weights))
    return Linear(jnp.asarray(np.ascontiguousarray(reordered)), jnp.asarray(module.bias.numpy()))


COLOUR_PLANE = 16


class PgxGames:
    """Endless games in lock-step."""

    def __init__(self, network: JaxNetwork, size: int, num_games: int, num_simulations: int, seed: int) -> None:
        """Compiles the step and plays one move."""
        self.num_games, self.num_simulations = num_games, num_simulations
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
        return self.num_games * (self.num_simulations + 1)


def planes_of(observation: Any) -> Any:
    """The project's planes from those of pgx, [B, S, S, P]. The last plane of pgx is 1 if White is to move."""
    planes = observation.astype(jnp.float32)
    return planes.at[..., COLOUR_PLANE].set(1.0 - planes[..., COLOUR_PLANE])


class _Position(NamedTuple):
    logits: Any  # [B, A], the lowest float for illegal actions
    value: Any  # [B], for the player to move; 0 if the game has ended


def _mover(environment: Any, num_games: int, num_simulations: int) -> Any:
    """A function (network, state, key) -> (state, key) that searches and plays a move in every game."""
    step, new_game = jax.vmap(environment.step), auto_reset(environment.step, environment.init)
    games = jnp.arange(num_games)

    def evaluate(network: JaxNetwork, state: Any) -> _Position:
        logits, value = apply_network(network, planes_of(state.observation))
        logits = logits - logits.max(axis=-1, keepdims=True)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        return _Position(logits, jnp.where(state.terminated, 0.0, value))

    def simulate(network: JaxNetwork, _: Any, action: Any, state: Any) -> tuple[Any, Any]:
        player = state.current_player
        state = step(state, action)
        position = evaluate(network, state)
        output = mctx.RecurrentFnOutput(
            reward=state.rewards[games, player],
            discount=jnp.where(state.terminated, 0.0, -1.0),
            prior_logits=position.logits,
            value=position.value,
        )
        return output, state

    def move(network: JaxNetwork, state: Any, key: Any) -> tuple[Any, Any]:
        search_key, games_key, key = jax.random.split(key, 3)
        position = evaluate(network, state)
        found = mctx.muzero_policy(
            params=network,
            rng_key=search_key,
            root=mctx.RootFnOutput(prior_logits=position.logits, value=position.value, embedding=state),
            recurrent_fn=simulate,
            num_simulations=num_simulations,
            invalid_actions=~state.legal_action_mask,
        )
        keys = jax.random.split(games_key, num_games)
        return jax.vmap(new_game)(state, found.action, keys), key

    return move

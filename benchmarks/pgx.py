"""Self-play of 9x9 Go in JAX: rules of `pgx`, search of `mctx`, and the project's network with its weights.

It follows the AlphaZero example of pgx, but with the PUCT search of `mctx` instead of its Gumbel search, as in our
self-play. Only the child process of the row imports this module, because JAX is optional.
"""

from typing import Any

import jax
import jax.numpy as jnp
import mctx
import pgx
from pgx.experimental import auto_reset

from benchmarks.harness import Work, rate
from zero.config.params import Params
from zero.network.model import AlphaZeroNetwork, fold
from zero.network.weights import new_network

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
"""Layout of planes, filters and result; channels last is the fastest layout on CPUs."""
COLOUR_PLANE = 16

Weights = dict[str, Any]
"""Tensors of a network without normalisations, by their names in PyTorch; filters are [S, S, in, out]."""


def selfplay(params: Params) -> Work:
    """Evaluations per second: one per simulation and one for the root. The games have no end: new ones replace them."""
    num_games, num_simulations = params.selfplay.num_slots, params.selfplay.num_simulations
    weights = jax_weights(new_network(params.network, params.game, params.seed))
    environment: Any = pgx.make(f"go_{params.game.size}x{params.game.size}")
    key, start = jax.random.split(jax.random.PRNGKey(params.seed))
    state = jax.jit(jax.vmap(environment.init))(jax.random.split(start, num_games))
    move = jax.jit(mover(environment, num_games, num_simulations))

    def step() -> int:
        nonlocal state, key
        state, key = jax.block_until_ready(move(weights, state, key))
        return num_games * (num_simulations + 1)

    step()  # compiles
    return lambda seconds: rate(step, seconds)


def jax_weights(network: AlphaZeroNetwork) -> Weights:
    """The weights of a network, which must have the architecture of the paper."""
    spec = network.spec.network
    assert spec.tower == "residual" and spec.heads == "joint" and not (spec.global_pooling or spec.pooled_heads)
    tensors = {name: tensor.numpy() for name, tensor in fold(network).state_dict().items()}
    return {
        name: jnp.asarray(tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor)
        for name, tensor in tensors.items()
    }


def apply_network(weights: Weights, planes: Any) -> tuple[Any, Any]:
    """Planes [B, S, S, P] float32 -> policy logits [B, A], values [B] for the player to move."""

    def convolve(layer: str, x: Any) -> Any:
        filters, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
        return jax.lax.conv_general_dilated(x, filters, (1, 1), "SAME", dimension_numbers=DIMENSIONS) + bias

    def connect(layer: str, x: Any) -> Any:
        return x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]

    def flatten(x: Any) -> Any:
        return x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channels first, as in PyTorch

    relu = jax.nn.relu
    x = relu(convolve("tower.0.first", planes))
    num_blocks = sum(name.endswith("second.weight") for name in weights)
    for block in range(1, num_blocks + 1):
        y = relu(convolve(f"tower.{block}.first", x))
        x = relu(x + convolve(f"tower.{block}.second", y))
    policy = connect("policy_head.output", flatten(relu(convolve("policy_head.reduce", x))))
    hidden = relu(connect("value_head.hidden", flatten(relu(convolve("value_head.reduce", x)))))
    return policy, jnp.tanh(connect("value_head.output", hidden))[:, 0]


def planes_of(observation: Any) -> Any:
    """The project's planes from those of pgx, [B, S, S, P]. The last plane of pgx is 1 if White is to move."""
    planes = observation.astype(jnp.float32)
    return planes.at[..., COLOUR_PLANE].set(1.0 - planes[..., COLOUR_PLANE])


def mover(environment: Any, num_games: int, num_simulations: int) -> Any:
    """A function (weights, state, key) -> (state, key) that searches and plays a move in every game."""
    step, new_game = jax.vmap(environment.step), auto_reset(environment.step, environment.init)
    games = jnp.arange(num_games)

    def evaluate(weights: Weights, state: Any) -> tuple[Any, Any]:
        """Logits [B, A], the lowest float for illegal actions; values [B], 0 if the game has ended."""
        logits, value = apply_network(weights, planes_of(state.observation))
        logits = logits - logits.max(axis=-1, keepdims=True)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        return logits, jnp.where(state.terminated, 0.0, value)

    def simulate(weights: Weights, _: Any, action: Any, state: Any) -> tuple[Any, Any]:
        player = state.current_player
        state = step(state, action)
        logits, value = evaluate(weights, state)
        reward, discount = state.rewards[games, player], jnp.where(state.terminated, 0.0, -1.0)
        return mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value), state

    def move(weights: Weights, state: Any, key: Any) -> tuple[Any, Any]:
        search_key, games_key, key = jax.random.split(key, 3)
        logits, value = evaluate(weights, state)
        found = mctx.muzero_policy(
            params=weights,
            rng_key=search_key,
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            recurrent_fn=simulate,
            num_simulations=num_simulations,
            invalid_actions=~state.legal_action_mask,
        )
        return jax.vmap(new_game)(state, found.action, jax.random.split(games_key, num_games)), key

    return move

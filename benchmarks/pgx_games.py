"""Self-play of 9x9 Go in JAX by `pgx` (rules) and `mctx` (search): the rival of the project's own self-play.

As in the AlphaZero example of pgx, with the PUCT search of `mctx` in the place of its Gumbel search: the work of ours.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import pgx
from pgx.experimental import auto_reset

from benchmarks.jax_network import JaxNetwork, judge

COLOUR_PLANE = 16


class PgxGames:
    """Games that go on for ever, a move of each at a time."""

    def __init__(self, network: JaxNetwork, size: int, num_games: int, num_simulations: int, seed: int) -> None:
        """Compiles the move and plays one."""
        self.num_games, self.num_simulations = num_games, num_simulations
        self._network = network
        environment: Any = pgx.make(f"go_{size}x{size}")
        key, self._key = jax.random.split(jax.random.PRNGKey(seed))
        self._state = jax.jit(jax.vmap(environment.init))(jax.random.split(key, num_games))
        self._move = jax.jit(_mover(environment, num_games, num_simulations))
        self.step()

    def step(self) -> int:
        """Plays a move in every game; the evaluations it took: each simulation's, and the root's."""
        self._state, self._key = self._move(self._network, self._state, self._key)
        jax.block_until_ready(self._state)
        return self.num_games * (self.num_simulations + 1)


def planes_of(observation: Any) -> Any:
    """The planes of the project from those of pgx, [B, S, S, P]: its last one is 1 where White is to move."""
    planes = observation.astype(jnp.float32)
    return planes.at[..., COLOUR_PLANE].set(1.0 - planes[..., COLOUR_PLANE])


class _Position(NamedTuple):
    logits: Any  # [B, A], illegal actions at the least float
    value: Any  # [B], for the player to move; 0 where the game has ended


def _mover(environment: Any, num_games: int, num_simulations: int) -> Any:
    """A function (network, state, key) -> (state, key) that searches and plays a move in every game."""
    step, new_game = jax.vmap(environment.step), auto_reset(environment.step, environment.init)
    games = jnp.arange(num_games)

    def judged(network: JaxNetwork, state: Any) -> _Position:
        logits, value = judge(network, planes_of(state.observation))
        logits = logits - logits.max(axis=-1, keepdims=True)
        logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
        return _Position(logits, jnp.where(state.terminated, 0.0, value))

    def simulate(network: JaxNetwork, _: Any, action: Any, state: Any) -> tuple[Any, Any]:
        player = state.current_player
        state = step(state, action)
        position = judged(network, state)
        output = mctx.RecurrentFnOutput(
            reward=state.rewards[games, player],
            discount=jnp.where(state.terminated, 0.0, -1.0),
            prior_logits=position.logits,
            value=position.value,
        )
        return output, state

    def move(network: JaxNetwork, state: Any, key: Any) -> tuple[Any, Any]:
        search_key, games_key, key = jax.random.split(key, 3)
        position = judged(network, state)
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

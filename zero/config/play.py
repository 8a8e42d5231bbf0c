"""Sections of the parameters about games: rules, search, self-play, gating match, re-execution check.

Defaults are the values of the paper (Silver et al. 2017, Methods), or off for what the paper does not have.
"""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zero.config.section import Fraction, NumSimulations, PositiveInt, Section


class GoParams(Section):
    """Go with area scoring and positional superko; a game ends after two passes or 2*S*S moves."""

    name: Literal["go"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    komi: Annotated[float, Field(ge=-400.0, le=400.0, multiple_of=0.5)] = 7.5
    """Points added to White's area; 7.5 in the paper, 7 is fair on 9x9 (and allows draws)."""
    allow_suicide: bool = False
    """True: a move may remove the player's own stones; the paper and most rule sets forbid it."""


class GomokuParams(Section):
    """Gomoku: the first player with `in_a_row` stones on a line wins; a full board is a draw."""

    name: Literal["gomoku"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    in_a_row: Annotated[int, Field(ge=2, le=19)] = 5
    """Stones in a row (or more) that win."""

    @model_validator(mode="after")
    def _line_fits(self) -> Self:
        if self.in_a_row > self.size:
            raise ValueError(f"in_a_row {self.in_a_row} does not fit on a board of size {self.size}")
        return self


GameParams = Annotated[GoParams | GomokuParams, Field(discriminator="name")]


class SearchParams(Section):
    """Tree search, shared by self-play and matches."""

    c_puct: Annotated[float, Field(gt=0.0, le=100.0)] = 1.5
    """Exploration constant of the PUCT formula."""
    first_play: Literal["zero", "parent"] = "zero"
    """First-play urgency, the value of an action before its first visit: 0 as in the paper, or the mean value of the
    parent. With 0 and few simulations, a losing player visits every action once and then plays by its prior."""
    random_symmetry: bool = True
    """True: each leaf is evaluated under a random symmetry of the board, as in the paper."""
    tree_reuse: bool = True
    """True: the subtree of the played move becomes the next tree, as in the paper."""
    max_nodes: PositiveInt = 4096
    """Nodes a tree can hold; if a reused subtree is larger, its newest nodes are dropped."""
    root: Literal["puct", "gumbel"] = "puct"
    """Action selection at the root: `puct` as in the paper, or `gumbel`: sequential halving over actions drawn without
    replacement, with the improved policy as the target (Danihelka et al. 2022). For few simulations."""
    considered_actions: Annotated[int, Field(ge=1, le=19 * 19 + 1)] = 16
    """Actions that a Gumbel root considers (`max_num_considered_actions` of mctx): 16 in its paper."""
    value_scale: Annotated[float, Field(gt=0.0, le=10.0)] = 0.1
    """Weight of Q-values against priors in a Gumbel search, c_scale of its paper: 0.5 for values in [-1, 1] is the
    paper's for Go, 0.1 for rescaled values is mctx's."""
    rescale_values: bool = True
    """True: a Gumbel search rescales the Q-values of a node to [0, 1] by their minimum and maximum."""
    evaluation_cache: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Evaluations that a shard caches, so that equal positions are evaluated once; 0: no cache, as in the paper."""
    pass_wins: Annotated[bool, Field(exclude_if=not_)] = False
    """True: after a pass, the search counts a second pass that wins as a won game. Then no player passes while dead
    stones on the board still count for the opponent. False as in the paper: the network evaluates the position."""


class PlayParams(Section):
    """How the games of a shard are played, except for the search; self-play and the match have it in common."""

    num_slots: PositiveInt = 100
    """Games of a shard in play at once: the largest batch of the network."""
    num_simulations: NumSimulations = 1600
    """Simulations per move, not counting the evaluation of a new root: 1,600 in the paper."""
    temperature_moves: Annotated[int, Field(ge=0)] = 30
    """Moves at the start of a game drawn in proportion to the visit counts; later the most visited move is played.
    30 in the paper at 19x19; scaled by the area of the board 7 at 9x9, 5 at 8x8."""
    dirichlet_concentration: Annotated[float, Field(gt=0.0)] = 10.83
    """Sum of the parameters of the root noise: alpha is this over the number of legal moves; 10.83 gives 0.03 at
    19x19."""
    dirichlet_fraction: Fraction = 0.25
    """Share of the noise in the root's prior: 0.25 in the paper, 0 for no noise."""
    forced_playouts: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """k of forced playouts: root actions get at least sqrt(k P N) visits. The policy target leaves out those that did
    not pay off (KataGo: 2). 0: none, as in the paper."""
    full_search_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Playout-cap randomisation: probability that a move gets `num_simulations` (KataGo: 0.25). The other moves get
    `fast_simulations` and no noise, and are not policy targets. 1: every move, as in the paper."""
    fast_simulations: NumSimulations = 12
    """Simulations of a move without full search."""
    calibration_fraction: Fraction = 0.1
    """Share of games that never resign and measure the cost of resignation: 0.1 in the paper; 0: no game resigns."""

    @model_validator(mode="after")
    def _fast_is_faster(self) -> Self:
        if self.fast_simulations > self.num_simulations:
            raise ValueError(
                f"fast_simulations {self.fast_simulations} is above num_simulations {self.num_simulations}; lower it"
            )
        return self


class SelfplayParams(PlayParams):
    """Self-play of the champion."""

    num_games: PositiveInt = 25_000
    """Games per generation: 25,000 in the paper."""
    games_per_shard: PositiveInt = 100
    """Games in a shard, the unit of distribution; choose it so that a shard takes 60 seconds or more."""
    false_positive_target: Fraction = 0.05
    """Largest share of won games among the calibration games that would have been resigned: 0.05 in the paper. It sets
    the resignation threshold of the next generation."""
    overlap: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: a generation's games are played by the champion of the generation before the last, so that they can be
    played during training and gating; the three parts of the paper also run at once. False: by the last champion."""

    @property
    def play(self) -> PlayParams:
        """What a shard of self-play needs of this section."""
        return PlayParams.model_validate(self.model_dump(include=set(PlayParams.model_fields)))


def match_play(num_slots: int, num_simulations: int) -> PlayParams:
    """How a match is played: no noise, no random moves, full search for every move, no resignation."""
    # Not validated: players of `zero match` may search more than the 65,535 visits that a game record can hold.
    return PlayParams.model_construct(
        num_slots=num_slots,
        num_simulations=num_simulations,
        temperature_moves=0,
        dirichlet_fraction=0.0,
        fast_simulations=num_simulations,
        calibration_fraction=0.0,
    )


class GatingParams(Section):
    """The match between challenger and champion."""

    num_games: Annotated[int, Field(ge=2, multiple_of=2)] = 400
    """Games of the match, half with each colour: 400 in the paper."""
    games_per_shard: Annotated[int, Field(ge=2, multiple_of=2)] = 100
    """Games in a shard."""
    num_slots: PositiveInt = 100
    """Games of a shard in play at once."""
    num_simulations: NumSimulations = 1600
    """Simulations per move: 1,600 in the paper."""
    threshold: Fraction = 0.55
    """Score (a draw is half a win) at which the challenger becomes champion: 0.55 in the paper."""

    @property
    def play(self) -> PlayParams:
        """What a shard of the match needs of this section."""
        return match_play(self.num_slots, self.num_simulations)


class VerificationParams(Section):
    """Re-execution check: some shards are played again by another process before a generation is recorded."""

    shard_fraction: Fraction = 0.02
    """Share of the shards of self-play and of the match to play again; at least one of each, none if it is 0."""
    game_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of the games of such a shard to compare: it is played until that many of its games have ended."""

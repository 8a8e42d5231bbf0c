"""Sections of the parameters about games: the rules, the search, self-play, the match, double play."""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zero.config.section import Fraction, NumSimulations, PositiveInt, Section


class GoParams(Section):
    """Go with area scoring, positional superko as legality, and two passes or 2*S*S moves as its end."""

    name: Literal["go"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    komi: Annotated[float, Field(ge=-400.0, le=400.0, multiple_of=0.5)]
    """Points added to White's area; 7.5 in the paper, 7 is fair on 9x9 (and allows draws)."""
    allow_suicide: bool
    """True where a move may remove the player's own stones; the paper and most rule sets forbid it."""


class GomokuParams(Section):
    """Gomoku: the first to own `in_a_row` points on a line wins; a full board is a draw."""

    name: Literal["gomoku"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    in_a_row: Annotated[int, Field(ge=2, le=19)]
    """Stones in a row (or more) that win."""

    @model_validator(mode="after")
    def _line_fits(self) -> Self:
        if self.in_a_row > self.size:
            raise ValueError(f"in_a_row {self.in_a_row} does not fit on a board of size {self.size}")
        return self


GameParams = Annotated[GoParams | GomokuParams, Field(discriminator="name")]


class SearchParams(Section):
    """PUCT search, shared by self-play and matches."""

    c_puct: Annotated[float, Field(gt=0.0, le=100.0)]
    """Exploration constant of the PUCT formula."""
    first_play: Literal["zero", "parent"]
    """Value of an action before its first visit: 0 as in the paper, or the mean value of the position. With few
    simulations 0 makes a player that is behind try everything once and then play by its prior alone."""
    random_symmetry: bool
    """True: each leaf is evaluated under a symmetry of the board drawn at random, as in the paper."""
    tree_reuse: bool
    """True: the subtree of the move played becomes the next tree, as in the paper."""
    max_nodes: PositiveInt
    """Nodes a tree can hold; of a larger reused subtree the newest nodes are forgotten."""
    root: Literal["puct", "gumbel"]
    """How the root spends its simulations: `puct` as in the paper, or `gumbel`: sequential halving over actions drawn
    without replacement, with the improved policy as the target (Danihelka et al. 2022). For few simulations."""
    considered_actions: Annotated[int, Field(ge=1, le=19 * 19 + 1)]
    """Actions that a Gumbel root considers: 16 in its paper."""
    value_scale: Annotated[float, Field(gt=0.0, le=10.0)]
    """How much Q-values weigh against priors in a Gumbel search, its paper's c_scale: 0.5 of values from -1 to 1 is the
    paper's for Go, 0.1 of rescaled ones mctx's."""
    rescale_values: bool
    """True: in a Gumbel search the Q-values of a node are brought to [0, 1] by the least and the greatest of them."""
    evaluation_cache: Annotated[int, Field(ge=0, le=2**20)]
    """Evaluations that a shard remembers, so that equal questions are asked once; 0: none, as in the paper."""
    pass_wins: Annotated[bool, Field(exclude_if=not_)] = False
    """True: after a pass, a player whom a second pass would make the winner has won, for the search: so nobody passes
    while stones that are as good as dead still count for the other. False, or not written: the network is asked, as in
    the paper. Not in digests where it is false."""


class SelfplayParams(Section):
    """Self-play of the champion against itself."""

    num_games: PositiveInt
    """Games a generation: 25,000 in the paper."""
    games_per_shard: PositiveInt
    """Games a shard, the unit of distribution; give a shard 60 seconds of work or more."""
    num_slots: PositiveInt
    """Games of a shard in play at once: the largest batch of the network."""
    num_simulations: NumSimulations
    """Simulations a move, beside the evaluation of a new root: 1,600 in the paper."""
    temperature_moves: Annotated[int, Field(ge=0)]
    """Moves at the start of a game drawn in proportion to the visit counts; later the most visited move is played.
    30 in the paper at 19x19; scaled by the area of the board 7 at 9x9, 5 at 8x8."""
    dirichlet_concentration: Annotated[float, Field(gt=0.0)]
    """Sum of the root noise's parameters: alpha is this over the number of legal moves; 10.83 gives 0.03 at 19x19."""
    dirichlet_fraction: Fraction
    """Share of the noise in the root's prior: 0.25 in the paper, 0 for none."""
    forced_playouts: Annotated[float, Field(ge=0.0, le=100.0)]
    """k of forced playouts: root actions get at least sqrt(k P N) visits, which the policy target leaves out where they
    did not pay (KataGo: 2); 0: none, as in the paper."""
    full_search_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of moves with `num_simulations`, drawn at random; the others are played fast, without noise, and are no
    policy target (playout-cap randomisation; KataGo: 0.25). 1: every move, as in the paper."""
    fast_simulations: NumSimulations
    """Simulations of a fast move."""
    calibration_fraction: Fraction
    """Share of games that never resign and measure what resignation costs: 0.1 in the paper; 0: no game resigns."""
    false_positive_target: Fraction
    """Of the calibration games that would have been resigned, the share that may have been won: 0.05 in the paper. The
    next generation's threshold is set by it."""
    overlap: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: a generation's games are by the champion that stood when the generation before began, so that they can be
    played while that one trains and its challenger is gated; the paper's three parts work at once, too. False, or not
    written: by the champion that the generation before left. Not in digests where it is false."""

    @model_validator(mode="after")
    def _fast_is_faster(self) -> Self:
        if self.fast_simulations > self.num_simulations:
            raise ValueError(
                f"fast_simulations {self.fast_simulations} is above num_simulations {self.num_simulations}"
            )
        return self


class GatingParams(Section):
    """The match of the challenger against the champion."""

    num_games: Annotated[int, Field(ge=2, multiple_of=2)]
    """Games of the match, half with each colour: 400 in the paper."""
    games_per_shard: Annotated[int, Field(ge=2, multiple_of=2)]
    """Games a shard."""
    num_slots: PositiveInt
    """Games of a shard in play at once."""
    num_simulations: NumSimulations
    """Simulations a move: 1,600 in the paper."""
    threshold: Fraction
    """Score (a draw is half a win) at which the challenger becomes champion: 0.55 in the paper."""


class VerificationParams(Section):
    """Double play: shards that are played a second time, by another process, before a generation is recorded."""

    shard_fraction: Fraction
    """Shards of self-play, and of the match, that are drawn for it; at least one of each, none where it is 0."""
    game_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Games of such a shard to compare: it is played until so many of its games have ended."""

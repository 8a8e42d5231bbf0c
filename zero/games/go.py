"""Rules of Go: captures, positional superko, area scoring; two passes or `max_moves` end the game.

A move that violates superko is illegal. Not for: simple or situational ko, territory scoring, removal of dead stones.
Source: the Tromp-Taylor rules (https://tromp.github.io/go.html), with suicide off by default.
Slow twin: tests/oracle/go.py.
"""

import numpy as np

from zero.games.position import (
    BLACK,
    EMPTY,
    END_LENGTH,
    END_PASSES,
    ENDED,
    NUM_MOVES,
    NUM_PASSES,
    REMOVED_BLACK,
    REMOVED_WHITE,
    TO_PLAY,
    WALL,
    History,
    Position,
    Rules,
    flip_bit,
    side,
)
from zero.kernels import kernel


@kernel
def add_liberty(position: Position, head: int, point: int) -> None:
    """Adds `point` to the pseudo-liberties of a chain. Writes into `position`."""
    position.liberty_count[head] += 1
    position.liberty_sum[head] += point + 1
    position.liberty_squares[head] += (point + 1) * (point + 1)


@kernel
def remove_liberty(position: Position, head: int, point: int) -> None:
    """Removes `point` once from the pseudo-liberties of a chain. Writes into `position`."""
    position.liberty_count[head] -= 1
    position.liberty_sum[head] -= point + 1
    position.liberty_squares[head] -= (point + 1) * (point + 1)


@kernel
def in_atari(position: Position, head: int) -> bool:
    """True if all pseudo-liberties of a chain are the same point."""
    # The Cauchy-Schwarz inequality is an equality only for equal values. The products exceed int32 at 19x19.
    count = np.int64(position.liberty_count[head])
    total = np.int64(position.liberty_sum[head])
    return bool(count * np.int64(position.liberty_squares[head]) == total * total)


@kernel
def merge(position: Position, head: int, other: int) -> int:
    """Joins two chains and returns the head of the larger one, which is the new head. Writes into `position`."""
    if position.num_stones[other] > position.num_stones[head]:
        head, other = other, head
    # Only the smaller chain gets a new head, so merging a board full of stones stays cheap.
    stone = other
    while True:
        position.head[stone] = head
        stone = position.next_stone[stone]
        if stone == other:
            break
    # Exchanging two successors joins two rings into one.
    position.next_stone[head], position.next_stone[other] = position.next_stone[other], position.next_stone[head]
    position.num_stones[head] += position.num_stones[other]
    position.liberty_count[head] += position.liberty_count[other]
    position.liberty_sum[head] += position.liberty_sum[other]
    position.liberty_squares[head] += position.liberty_squares[other]
    # The xor of a chain's keys lets a capture change the position's hash with one operation.
    position.chain_hash[head] ^= position.chain_hash[other]
    return head


@kernel
def remove_chain(rules: Rules, position: Position, bits: np.ndarray, head: int) -> None:
    """Removes a chain from the board. Writes into `position` and `bits` (the bitboard of its colour)."""
    mark = REMOVED_BLACK if position.board[head] == BLACK else REMOVED_WHITE
    stone = head
    while True:
        position.board[stone] = EMPTY
        position.removed[stone] |= mark
        flip_bit(bits, stone)
        for i in range(4):
            neighbour = rules.neighbours[stone, i]
            if position.board[neighbour] != EMPTY and position.board[neighbour] != WALL:
                # Stones of this chain that are still on the board get liberties too; no one reads its counts again.
                add_liberty(position, position.head[neighbour], stone)
        # The ring of a removed chain stays intact until a stone is placed on one of its points.
        stone = position.next_stone[stone]
        if stone == head:
            break


@kernel
def move(rules: Rules, position: Position, boards: np.ndarray, action: int, is_last: bool) -> np.uint64:
    """Plays a legal action and returns the change of the hash. Writes into `position` and `boards` ([2, W])."""
    state = position.state
    change = np.uint64(0)
    if action == rules.num_points:
        state[NUM_PASSES] += 1
        if state[NUM_PASSES] == 2:
            state[ENDED] = END_PASSES
    else:
        state[NUM_PASSES] = 0
        change = place_stone(rules, position, boards, action, state[TO_PLAY])
    if is_last and not state[ENDED]:
        state[ENDED] = END_LENGTH
    return change


@kernel
def place_stone(rules: Rules, position: Position, boards: np.ndarray, point: int, colour: int) -> np.uint64:
    """Places a stone, captures, and returns the change of the hash. Writes into `position` and `boards` ([2, W])."""
    own, other = side(colour), side(-colour)
    change = rules.zobrist[own, point]
    flip_bit(boards[own], point)
    position.board[point] = colour
    position.head[point] = point
    position.next_stone[point] = point
    position.num_stones[point] = 1
    position.liberty_count[point] = 0
    position.liberty_sum[point] = 0
    position.liberty_squares[point] = 0
    position.chain_hash[point] = change
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        content = position.board[neighbour]
        if content == EMPTY:
            add_liberty(position, point, neighbour)
        elif content != WALL:
            # Once for each side of the point, as `add_liberty` counted it: this also holds for a chain on two sides.
            remove_liberty(position, position.head[neighbour], point)
    # Own chains first: a capture gives liberties back to the chain that they form.
    head = int(point)
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        if position.board[neighbour] == colour and position.head[neighbour] != head:
            head = merge(position, head, int(position.head[neighbour]))
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        if position.board[neighbour] == -colour and position.liberty_count[position.head[neighbour]] == 0:
            captured = int(position.head[neighbour])
            change ^= position.chain_hash[captured]
            remove_chain(rules, position, boards[other], captured)
    if position.liberty_count[head] == 0:  # suicide
        change ^= position.chain_hash[head]
        remove_chain(rules, position, boards[own], head)
    return np.uint64(change)


@kernel
def legal_mask(rules: Rules, position: Position, history: History, mask: np.ndarray) -> int:
    """Number of legal actions before the end of the game. Writes into `mask` ([A] bool)."""
    # The pass. It is always legal, although it repeats the position: Tromp-Taylor superko forbids only board plays.
    count = 1
    for point in range(rules.num_points):
        legal = position.board[point] == EMPTY and is_legal_point(rules, position, history, point)
        mask[point] = legal
        count += legal
    mask[rules.num_points] = True
    return count


@kernel
def is_legal_point(rules: Rules, position: Position, history: History, point: int) -> bool:
    """True if the player to move may play on the empty point `point`."""
    colour = position.state[TO_PLAY]
    # The point itself is a liberty of each neighbouring chain. So a chain in atari has no other one: an own chain gives
    # the stone no liberty, and a chain of the opponent is captured.
    has_liberty = False
    captures = False
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        content = position.board[neighbour]
        if content == EMPTY:
            has_liberty = True
        elif content == colour:
            has_liberty |= not in_atari(position, position.head[neighbour])
        elif content == -colour:
            captures |= in_atari(position, position.head[neighbour])
    # A past position can only come back if it had this stone here and the stone was removed since. This skips the
    # comparison with all past positions for most moves. A suicide removes its own stone, so any position can come back.
    if has_liberty or captures:
        removed = REMOVED_BLACK if colour == BLACK else REMOVED_WHITE
        return not (position.removed[point] & removed) or not repeats_position(rules, position, history, point, False)
    return rules.allow_suicide and not repeats_position(rules, position, history, point, True)


@kernel
def repeats_position(rules: Rules, position: Position, history: History, point: int, suicide: bool) -> bool:
    """True if a stone on `point`, a suicide or not, repeats a past position: positional superko."""
    colour = position.state[TO_PLAY]
    time = position.state[NUM_MOVES]
    # The hash after the move, from the keys that it would add and remove: the move is not played.
    key = history.hashes[time]
    if not suicide:
        key ^= rules.zobrist[side(colour), point]
    # The chains in atari next to the point disappear: the opponent's, or in a suicide the player's own. A suicide has
    # no other own neighbours: a chain with one more liberty would save the stone.
    gone = colour if suicide else -colour
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        if position.board[neighbour] == gone:
            head = position.head[neighbour]
            # A chain on two sides of the point is removed once.
            if in_atari(position, head) and not _is_repeated_chain(rules, position, point, i):
                key ^= position.chain_hash[head]
    for past in range(time + 1):
        if history.hashes[past] == key and _equals_past(rules, position, history, point, past, suicide):
            return True
    return False


@kernel
def _is_repeated_chain(rules: Rules, position: Position, point: int, index: int) -> bool:
    """True if an earlier neighbour of `point` belongs to the same chain as neighbour `index`."""
    here = rules.neighbours[point, index]
    for i in range(index):
        neighbour = rules.neighbours[point, i]
        if position.board[neighbour] == position.board[here] and position.head[neighbour] == position.head[here]:
            return True
    return False


@kernel
def _equals_past(rules: Rules, position: Position, history: History, point: int, past: int, suicide: bool) -> bool:
    """True if the board after a stone on `point` equals row `past` of the history. Writes into the position's scratch.

    Compares all points, since different boards can have equal hashes.
    """
    colour = position.state[TO_PLAY]
    removed = position.scratch[0]
    removed[:] = 0
    gone = colour if suicide else -colour  # as in `repeats_position`
    for i in range(4):
        neighbour = rules.neighbours[point, i]
        if position.board[neighbour] == gone and in_atari(position, position.head[neighbour]):
            _mark_chain(position, position.head[neighbour], removed)
    for p in range(rules.num_points):
        after = EMPTY if removed[p] else position.board[p]
        if p == point and not suicide:
            after = colour
        word, bit = p >> 6, np.uint64(p & 63)
        was_black = (history.boards[past, 0, word] >> bit) & np.uint64(1)
        was_white = (history.boards[past, 1, word] >> bit) & np.uint64(1)
        if np.int64(was_black) - np.int64(was_white) != after:
            return False
    return True


@kernel
def _mark_chain(position: Position, head: int, marks: np.ndarray) -> None:
    """Marks the stones of a chain. Writes into `marks` ([S*S])."""
    stone = head
    while True:
        marks[stone] = 1
        stone = position.next_stone[stone]
        if stone == head:
            break


@kernel
def margin(rules: Rules, position: Position) -> float:
    """Black's area minus White's area minus komi. Writes into the position's scratch.

    An area is the stones of a colour plus the empty regions that touch only this colour.
    """
    seen = position.scratch[1]
    seen[:] = 0
    total = 0
    for start in range(rules.num_points):
        if position.board[start] != EMPTY:
            # Colours are +1 and -1, so sums count Black's points less White's.
            total += position.board[start]
        elif not seen[start]:
            size, owner = _fill_region(rules, position, start)
            total += size * owner
    return total - rules.komi


@kernel
def write_ownership(rules: Rules, position: Position, owners: np.ndarray) -> None:
    """Owner of each point: +1 Black, -1 White, 0 neither. Writes into `owners` ([S*S] int8) and the scratch."""
    queue, seen = position.scratch[0], position.scratch[1]
    seen[:] = 0
    for start in range(rules.num_points):
        if position.board[start] != EMPTY:
            owners[start] = position.board[start]
        elif not seen[start]:
            size, owner = _fill_region(rules, position, start)
            for i in range(size):
                owners[queue[i]] = owner


@kernel
def _fill_region(rules: Rules, position: Position, start: int) -> tuple[int, int]:
    """Size of the empty region of `start`, and the only colour that it touches or 0. Writes into the scratch.

    The points of the region are the first entries of `scratch[0]`.
    """
    board = position.board
    queue, seen = position.scratch[0], position.scratch[1]
    seen[start] = 1
    queue[0] = start  # breadth-first: entries before `done` have been expanded
    size = 1
    done = 0
    touches_black = touches_white = False
    while done < size:
        point = queue[done]
        done += 1
        for i in range(4):
            neighbour = rules.neighbours[point, i]
            content = board[neighbour]
            if content == EMPTY:
                if not seen[neighbour]:
                    seen[neighbour] = 1
                    queue[size] = neighbour
                    size += 1
            elif content == BLACK:
                touches_black = True
            elif content != WALL:
                touches_white = True
    # Regions that touch both colours, or none on an empty board, are neutral: 0.
    return size, int(touches_black) - int(touches_white)

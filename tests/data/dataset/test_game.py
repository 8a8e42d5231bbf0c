"""One game of SGF: the formats of KGS, OGS and CGoban, and every reason for a rejection."""

import pytest

from zero.data.dataset.game import GameReader
from zero.data.dataset.manifest import ImportedGame, ImportOptions, RawGame, Rejected, SplitFractions
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules

RULES = go_rules(9, 9, 6.5)
SPLIT = SplitFractions(train=0.8, validation=0.1, test=0.1)
OPTIONS = ImportOptions(komi=(6.5,), min_rating=None, min_moves=2, split=SPLIT, seed=1)

KGS = r"""(;GM[1]FF[4]CA[UTF-8]AP[CGoban:3]ST[2]
RU[Japanese]SZ[9]KM[6.50]TM[1200]OT[5x60 byo-yomi]
PW[shiro]PB[kuro]WR[3k]BR[4k?]DT[2024-08-30]PC[The KGS Go Server at http://www.gokgs.com/]C[kuro [4k?\]: hi
shiro [3k\]: hi (have fun ;)
]RE[B+1.50]
;B[ee]BL[1188.217]
;W[gc]WL[1196.063]C[kuro [4k?\]: nice
]
(;B[cg]BL[1174.313]
;W[tt]WL[1186.545]
;B[]BL[1166.035]TB[aa][ba]TW[ii]
)
(;B[gg];W[cc]))
"""
OGS = """(;FF[4]
CA[UTF-8]
GM[1]
DT[2018-01-16]
PC[OGS: https://online-go.com/game/11303468]
GN[Friendly Match]
PB[dorota]
PW[千盛]
BR[6k]
WR[1k]
TM[259200]OT[86400 fischer]
RE[W+45.5]
SZ[9]
KM[6.5]
RU[Japanese]
GN[友谊赛]
C[dorota: Hi!
]
;B[ee]
C[dorota: Hi!
]
(;W[gc]
(;B[cg]
(;W[]
(;B[]
)))))
"""
OLD = """(;GaMe[1]FF[3]SiZe[9]KoMi[6.5]PlayerBlack[a]PlayerWhite[b]REsult[W+R]HAndicap[0]PL[B]
;Black[ee];White[gc];B[cg];W[tt];B[tt])"""
MOVES = [40, 24, 56, 81, 81]


def read(text: str | bytes, rules: Rules = RULES, **options) -> ImportedGame | Rejected:
    data = text if isinstance(text, bytes) else text.strip().encode()
    return GameReader(rules, OPTIONS.model_copy(update=options)).read(RawGame(7, "games/a.sgf", 3, data))


def accepted(text: str | bytes, rules: Rules = RULES, **options) -> ImportedGame:
    game = read(text, rules, **options)
    assert isinstance(game, ImportedGame), game
    return game


def game_of(moves: str, head: str = "SZ[9]KM[6.5]RE[B+R]") -> str:
    """A game with moves such as `ee gc`, Black's first; `--` is a pass."""
    points = ["" if point == "--" else point for point in moves.split()]
    return f"(;GM[1]{head}" + "".join(f";{'BW'[t % 2]}[{point}]" for t, point in enumerate(points)) + ")"


def test_a_game_of_kgs():
    game = accepted(KGS)
    assert (game.actions, game.outcome, game.margin, game.end) == (MOVES, 1, 1.5, "score")
    assert (game.black, game.white, game.black_rating, game.white_rating) == ("kuro", "shiro", "4k?", "3k")
    assert (game.result, game.komi, game.rules, game.date) == ("B+1.50", 6.5, "Japanese", "2024-08-30")
    assert game.place == "The KGS Go Server at http://www.gokgs.com/"
    assert (game.number, game.file, game.game) == (7, "games/a.sgf", 3)


def test_a_game_of_ogs():
    game = accepted(OGS)
    assert (game.actions, game.outcome, game.margin, game.end) == (MOVES, -1, -45.5, "score")
    assert (game.black, game.white, game.black_rating, game.white_rating) == ("dorota", "千盛", "6k", "1k")
    assert game.place == "OGS: https://online-go.com/game/11303468"


def test_a_game_in_the_old_format():
    game = accepted(OLD)
    assert (game.actions, game.outcome, game.end, game.black) == (MOVES, -1, "resignation", "a")


def test_the_digest_is_that_of_the_moves_up_to_symmetry_without_passes_at_the_end():
    moves = "ee gc cg aa"
    digest = accepted(game_of(moves)).digest
    mirrored = " ".join("abcdefghi"[8 - "abcdefghi".index(point[0])] + point[1] for point in moves.split())
    turned = " ".join(point[1] + point[0] for point in moves.split())
    assert accepted(game_of(mirrored)).digest == digest
    assert accepted(game_of(turned)).digest == digest
    assert accepted(game_of(moves + " -- --")).digest == digest
    assert accepted(game_of(moves, "SZ[9]KM[6.5]RE[W+3.5]PB[b]")).digest == digest
    assert accepted(game_of("ee gc cg ab")).digest != digest
    assert accepted(game_of("ee gc cg -- aa")).digest != digest


def test_passes_after_the_end_are_dropped():
    game = accepted(game_of("ee gc -- -- -- --"))
    assert game.actions == [40, 24, 81, 81]


@pytest.mark.parametrize(
    "head", ["HA[0]", "HA[1]", "HA[]", "SZ[]KM[]RE[]", "PL[B]", "PL[black]", "AP[x]AP[y]", "GN[a]GN[b]"]
)
def test_harmless_properties(head):
    assert accepted(game_of("ee gc", f"SZ[9]KM[6.5]RE[B+R]{head}")).actions == [40, 24]


def test_the_result_may_be_in_a_later_node():
    game = accepted("(;GM[1]SZ[9]KM[6.5];B[ee];W[gc]RE[W+T])")
    assert (game.outcome, game.end) == (-1, "time")


SUICIDE = "ba -- ab aa"
KO = "ba ca ab db bc cc ii bb cb bb"
"""White's last move takes back the ko at once."""


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("(;GM[1]SZ[9]KM[6.5]RE[B+R];B[ee]!)", "broken SGF", "SGF syntax error in line 1: unexpected text at '!)'"),
        (
            "(;GM[1]C[cut off (;GM[1]SZ[9];B[ee];B)",
            "broken SGF",
            (
                "SGF syntax error in line 1: a property without a value at ')'; another game starts inside it and is "
                "lost too"
            ),
        ),
        ("(;GM[1]SZ[9];B[ee];SZ[9];W[aa])", "broken SGF", "SZ[9] appears in node 3, expected node 1"),
        (game_of("ee gc", "SZ[9]KM[6.5]RE[B+R]RE[W+R]"), "broken SGF", "RE[B+R] and RE[W+R]"),
        ("(;SZ[9]KM[6.5]RE[B+R];B[ee][aa];W[bb])", "broken SGF", "move 1 has 2 points"),
        ("(;GM[2]SZ[9])", "another game", "GM[2] is another game, expected GM[1]"),
        (game_of("ee gc", "KM[6.5]RE[B+R]"), "another board size", "SZ[19], expected SZ[9]"),
        (game_of("ee gc", "SZ[13]"), "another board size", "SZ[13], expected SZ[9]"),
        (game_of("ee gc", "SZ[9:13]"), "another board size", "SZ[9:13], expected SZ[9]"),
        (game_of("ee gc", "SZ[nine]"), "another board size", "SZ[nine], expected SZ[9]"),
        (
            "(;SZ[9]KM[0.5]HA[2]AB[gc][cg]RE[B+R];W[ee];B[aa])",
            "handicap",
            "HA[2]: the record starts from an empty board",
        ),
        (game_of("ee gc", "SZ[9]KM[0.5]HA[3]RE[B+R]"), "handicap", "HA[3]: the record starts from an empty board"),
        (
            "(;SZ[9]KM[6.5]RE[B+R]AB[ee];W[gc];B[aa])",
            "set-up stones",
            "AB[ee] after move 0: the record starts from an empty board",
        ),
        (
            "(;SZ[9]KM[6.5]RE[B+R];B[ee];AW[aa][bb];W[gc])",
            "set-up stones",
            "AW[aa] and more after move 1: the record starts from an empty board",
        ),
        ("(;SZ[9]KM[6.5]RE[B+R]PL[W];W[ee];B[gc])", "set-up stones", "PL[W] after move 0"),
        ("(;SZ[9]KM[6.5]RE[B+R];W[ee];B[gc])", "out of turn", "move 1 is W's; Black moves first, then they alternate"),
        ("(;SZ[9]KM[6.5]RE[B+R];B[ee];B[gc])", "out of turn", "move 2 is B's"),
        (game_of("ee"), "too short", "1 moves, at least 2 are required"),
        (game_of("ee jj"), "illegal move", "move 2: 'jj' is not a point of the board"),
        (game_of("ee ee"), "illegal move", "move 2: E5: there is a black stone"),
        (game_of(SUICIDE), "illegal move", "move 4: A9: it would be suicide, which these rules forbid"),
        (game_of(KO), "illegal move", "move 10: B8: it would repeat the position after move 8 (positional superko)"),
        (game_of("ee -- -- gc"), "after the end", "move 4 of 4 follows the end of the game"),
        (game_of("ee gc", "SZ[9]KM[6.5]"), "no result", "there is no RE"),
        (game_of("ee gc", "SZ[9]KM[6.5]RE[Void]"), "no result", "RE[Void] names no winner"),
        (game_of("ee gc", "SZ[9]KM[6.5]RE[?]"), "no result", "RE[?] names no winner"),
        (game_of("ee gc", "SZ[9]KM[7.5]RE[B+R]"), "another komi", "KM[7.5], accepted are 6.5"),
        (game_of("ee gc", "SZ[9]KM[six]RE[B+R]"), "another komi", "KM[six], accepted are 6.5"),
        (game_of("ee gc", "SZ[9]RE[B+R]"), "another komi", "there is no KM, accepted are 6.5"),
    ],
)
def test_a_bad_game_is_rejected_with_its_reason(text, reason, detail):
    found = read(text)
    assert isinstance(found, Rejected)
    assert (found.file, found.game, found.reason) == ("games/a.sgf", 3, reason)
    assert detail in found.detail
    assert "\n" not in found.detail


def test_any_komi_can_be_accepted():
    assert accepted(game_of("ee gc", "SZ[9]KM[7.5]RE[B+R]"), komi=None).komi == 7.5
    assert accepted(game_of("ee gc", "SZ[9]RE[B+R]"), komi=None).komi is None
    assert accepted(game_of("ee gc", "SZ[9]KM[7.5]RE[B+R]"), komi=(5.5, 7.5)).komi == 7.5


@pytest.mark.parametrize(
    ("minimum", "black", "white", "detail"),
    [
        ("2k", "BR[1d]", "WR[2k]", None),
        ("2k", "BR[1d]", "WR[3k?]", "WR[3k?] is below 2k"),
        ("2k", "", "WR[1k]", "there is no BR"),
        ("2k", "BR[?]", "WR[1k]", "BR[?] is not a rating"),
        ("2k", "BR[2100]", "WR[1k]", "BR[2100] cannot be compared with 2k"),
        ("2000", "BR[2100]", "WR[1999]", "WR[1999] is below 2000"),
    ],
)
def test_both_players_need_the_least_rating(minimum, black, white, detail):
    found = read(game_of("ee gc", f"SZ[9]KM[6.5]RE[B+R]{black}{white}"), min_rating=minimum)
    if detail is None:
        assert isinstance(found, ImportedGame)
    else:
        assert isinstance(found, Rejected) and (found.reason, found.detail) == ("rating", detail)


def test_a_game_of_gomoku():
    rules = gomoku_rules(5, 5, 3)
    game = accepted("(;GM[4]SZ[5]RE[B+];B[aa];W[ab];B[ba];W[bb];B[ca])", rules)
    assert (game.actions, game.outcome, game.end) == ([0, 5, 1, 6, 2], 1, "unknown")
    found = read("(;GM[4]SZ[5]RE[B+];B[aa];W[ab];B[ba];W[bb];B[ca];W[ee])", rules)
    assert isinstance(found, Rejected) and found.reason == "after the end"


def test_a_long_text_is_shortened():
    game = accepted(game_of("ee gc", f"SZ[9]KM[6.5]RE[B+R]PB[{'x' * 5000}]"))
    assert len(game.black) == 80

"""Cutting files into games, and character sets."""

import pytest

from zero.data.dataset import texts
from zero.data.dataset.texts import BrokenGame, decodings, games_of
from zero.data.sgf import main_lines

NEXT = b"(;GM[1]SZ[9];B[ee])"


def cut(data: bytes, chunk: int = 7) -> list[bytes | BrokenGame]:
    position = 0

    def read(num_bytes: int) -> bytes:
        nonlocal position
        part = data[position : position + min(num_bytes, chunk)]
        position += len(part)
        return part

    return list(games_of(read))


@pytest.mark.parametrize("chunk", [1, 3, 64, 100_000])
def test_a_file_of_many_games_is_cut_between_them_in_any_chunks(chunk):
    games = [b"(;GM[1]C[a (smile\\] ;) ])", b"(;FF[4]\n;B[aa](;W[bb](;B[cc]))(;W[dd]))", b"( ;GM[1];B[aa](;W[bb])\n)"]
    assert cut(b"mail header ()\n" + b"\n--\n".join(games) + b"\nbye", chunk) == games


@pytest.mark.parametrize(
    ("broken", "detail"),
    [
        (b"(;GM[1]SZ[9];B[aa]\n", "another game starts before its end"),
        (b"(;GM[1]SZ[9](;B[aa](;W[bb])\n", "another game starts before its end"),
    ],
)
def test_after_an_incomplete_game_the_next_one_is_found(broken, detail):
    first, second = cut(broken + NEXT)
    assert isinstance(first, BrokenGame) and detail in first.detail
    assert second == NEXT


def test_a_file_that_ends_in_a_game_is_incomplete():
    assert cut(NEXT + b"(;GM[1];B[aa];W[b") == [
        NEXT,
        BrokenGame("the game is incomplete: its end is missing", num_bytes=17),
    ]


def test_a_game_that_is_too_large_is_skipped(monkeypatch):
    monkeypatch.setattr(texts, "MAX_GAME_BYTES", 1 << 20)
    large = b"(;GM[1]C[" + b"x" * (3 << 20) + b"])"
    first, second = cut(large + NEXT, 1 << 16)
    assert isinstance(first, BrokenGame) and first.is_too_large and first.detail == "the game has more than 1 MiB"
    assert second == NEXT


@pytest.mark.parametrize("after", [b"", b"]"])
def test_many_beginnings_of_games_do_not_each_search_the_rest_of_the_file(monkeypatch, after):
    monkeypatch.setattr(texts, "MAX_GAME_BYTES", 1 << 17)
    found = cut(b"(;GM[" * 100_000 + after + b";" * texts.TAIL_BYTES + NEXT, 1 << 16)
    assert found[-1] == NEXT
    searched = sum(game.num_bytes for game in found if isinstance(game, BrokenGame))
    assert searched < 2 * texts.MAX_SEARCHES * 500_000


def test_text_without_a_game_has_none():
    assert cut(b"PK\x03\x04 (not SGF" * 50_000, 1 << 16) == []


def read_name(data: bytes) -> str:
    """The name of Black in the first character set in which a game can be read."""
    assert cut(data + b"\n" + NEXT) == [data, NEXT]
    properties = dict(next(main_lines(next(decodings(data))))[0])
    assert set(properties) == {"GM", "PB", "RE"} | ({"CA"} & set(properties))
    return properties["PB"][0]


@pytest.mark.parametrize(
    ("charset", "codec", "name"),
    [
        ("UTF-8", "utf-8", "表 é"),
        ("utf8", "utf-8", "碁"),
        ("", "utf-8", "Müller"),
        ("", "latin-1", "José"),
        ("ISO-8859-1", "latin-1", "José"),
        ("UTF-8", "latin-1", "José"),  # a wrong name of the character set
        ("no-such-set", "latin-1", "José"),
        ("zip", "utf-8", "é"),  # a codec of Python that is not a character set
        ("Shift_JIS", "cp932", "表"),  # its second byte is a backslash
        ("SJIS", "cp932", "ポール"),
        ("", "cp932", "予定表"),
        ("GB2312", "gb18030", "乗"),  # its second byte is a backslash
        ("Big5", "big5", "功"),  # its second byte is a backslash
        ("EUC-KR", "euc-kr", "바둑"),
        ("windows-1251", "cp1251", "Иван"),
    ],
)
def test_names_in_any_character_set_do_not_hide_the_properties_after_them(charset, codec, name):
    head = f"CA[{charset}]".encode() if charset else b""
    assert read_name(b"(;GM[1]" + head + b"PB[" + name.encode(codec) + b"]RE[B+R];B[aa])") == name


def test_every_game_of_a_file_has_its_own_character_set():
    games = [f"(;GM[1]CA[{name}]PB[表];B[aa])".encode(codec) for name, codec in (("SJIS", "cp932"), ("UTF-8", "utf-8"))]
    assert cut(b"\n".join(games)) == games
    assert [next(decodings(game)).count("表") for game in games] == [1, 1]

"""Player specs: parsing and its errors."""

import pytest

from zero.errors import ParamsError
from zero.players.spec import PlayerSpec, parse_player


@pytest.mark.parametrize(
    "text, kind, argument, options",
    [
        ("random", "random", "", {}),
        ("rollout:5000", "rollout", "5000", {}),
        ("gnugo", "gnugo", "", {}),
        ("gnugo:3", "gnugo", "3", {}),
        ("gtp:gnugo --mode gtp --level 1,x=2", "gtp", "gnugo --mode gtp --level 1,x=2", {}),
        ("leelaz:w.txt,playouts=50", "leelaz", "w.txt", {"playouts": "50"}),
        ("go9", "network", "go9", {}),
        (
            "go9/gen-0012,simulations=800,resign=-0.9",
            "network",
            "go9/gen-0012",
            {"simulations": "800", "resign": "-0.9"},
        ),
        ("raw:go9/gen-0012", "raw", "go9/gen-0012", {}),
        ("models:/zero-go9@champion,simulations=8", "network", "models:/zero-go9@champion", {"simulations": "8"}),
        ("shipped:go9,simulations=8", "network", "shipped:go9", {"simulations": "8"}),
        ("raw:shipped:go9", "raw", "shipped:go9", {}),
        ("a:b/weights.safetensors", "network", "a:b/weights.safetensors", {}),
    ],
)
def test_a_spec_is_parsed(text, kind, argument, options):
    assert parse_player(text) == PlayerSpec(text, kind, argument, options)


@pytest.mark.parametrize("text", ["go9", "go9,simulations=8,resign=-0.9", "raw:go9", "leelaz:go9,playouts=5"])
def test_an_argument_is_replaced(text):
    assert parse_player(text).with_argument("a/gen-0001").text == text.replace("go9", "a/gen-0001")


@pytest.mark.parametrize(
    "text, message",
    [
        ("go9,simulations", "unknown option 'simulations'"),
        ("raw:go9,simulations=8", "raw has: none"),
        ("", "does not name a player; write for example go9"),
        ("raw:", "does not name a player"),
        ("random:5", "'random:5': random has no setting; write random"),
    ],
)
def test_an_unknown_option_is_rejected(text, message):
    with pytest.raises(ParamsError, match=message):
        parse_player(text)

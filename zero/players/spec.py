"""Players as they are written: the text that `zero match`, `zero gtp` and `zero play` take.

| text | player |
|---|---|
| `go9`, `go9/gen-0012`, `weights.safetensors`, `models:/zero-go9@champion` | a network and its search (`networks.py`) |
| `go9,simulations=800` | the same with so many simulations a move; also `resign=-0.9`, `root=puct` (SEARCH_OPTIONS) |
| `raw:go9` | the network alone |
| `shipped:go9` | a player that comes with the program; `raw:shipped:go9` is its network alone |
| `gnugo:10` | GNU Go at a level |
| `leelaz:weights.txt,playouts=200` | Leela Zero with a weight file |
| `gtp:COMMAND` | any program that speaks GTP, by its command line |
| `rollout:5000` | Monte-Carlo tree search with so many random games a move |
| `random` | a legal action, all equally likely |
"""

import re
from typing import NamedTuple

from zero.errors import ParamsError, did_you_mean
from zero.storage.manifests import NO_RESIGNATION

KINDS = ("random", "rollout", "gnugo", "leelaz", "gtp", "raw")
"""What may stand before a colon; anything else names a network."""
KIND_PATTERN = re.compile("[:,]")
SEARCH_OPTIONS = {
    "root": None,
    "pass_wins": None,
    "considered_actions": "gumbel",
    "value_scale": "gumbel",
    "c_puct": "puct",
}
"""Parameters of the search, by their names in `params.yaml`, in place of those a player was made with, and the root
that reads each."""
OPTIONS = {
    "network": ("simulations", "resign", *SEARCH_OPTIONS),
    "raw": (),
    "leelaz": ("playouts",),
}


class PlayerText(NamedTuple):
    """A player as it was written."""

    text: str
    kind: str  # of KINDS, or "network"
    argument: str
    options: dict[str, str]

    @property
    def has_network(self) -> bool:
        """True if the argument names a network."""
        return self.kind in ("network", "raw")

    def with_argument(self, argument: str) -> str:
        """The text of a player of the same kind and options that has another argument."""
        prefix = "" if self.kind == "network" else f"{self.kind}:"
        return ",".join([f"{prefix}{argument}", *(f"{name}={value}" for name, value in self.options.items())])

    def whole(self, name: str, value: str, lowest: int, highest: int) -> int:
        """A whole number of its text.

        Raises:
          ParamsError: it is none, or out of range.
        """
        if not value.isdecimal() or not lowest <= int(value) <= highest:
            raise ParamsError(f"{self.text!r}: {name} {value!r} is no number from {lowest} to {highest}")
        return int(value)

    def number(self, default: int, lowest: int, highest: int) -> int:
        """Its argument, a whole number.

        Raises:
          ParamsError: it is none, or out of range.
        """
        return self.whole(self.kind, self.argument or str(default), lowest, highest)

    def resign_threshold(self) -> float:
        """Its option `resign`: below this value it resigns, at -1 never.

        Raises:
          ParamsError: it is no value.
        """
        text = self.options.get("resign", str(NO_RESIGNATION))
        try:
            threshold = float(text)
        except ValueError:
            threshold = 2.0
        if not -1.0 <= threshold <= 1.0:
            raise ParamsError(f"{self.text!r}: resign {text!r} is no value from -1 (never) to 1")
        return threshold


def parse_player(text: str) -> PlayerText:
    """Takes the text of a player apart.

    Raises:
      ParamsError: an option that the player has not, or no network where one is needed.
    """
    kind = KIND_PATTERN.split(text.strip(), maxsplit=1)[0]
    rest = text.strip()
    if kind in KINDS:
        rest = rest.removeprefix(kind).removeprefix(":")
    else:
        kind = "network"
    if kind == "gtp":
        return PlayerText(text, kind, rest, {})
    argument, *pairs = rest.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        known = OPTIONS.get(kind, ())
        if name not in known or not equals:
            hint = did_you_mean(name, list(known))
            raise ParamsError(f"{text!r}: unknown option {pair!r}{hint}; {kind} has: {', '.join(known) or 'none'}")
        options[name] = value
    if not argument and kind in ("network", "raw", "leelaz"):
        raise ParamsError(f"{text!r} names no player; write for example go9, raw:go9/gen-0012 or gnugo:10")
    return PlayerText(text, kind, argument, options)

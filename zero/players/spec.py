"""Player specs: the text that names a player in `zero match`, `zero elo`, `zero gtp` and `zero play`.

| spec | player |
|---|---|
| `go9`, `go9/gen-0012`, `weights.safetensors`, `models:/zero-go9@champion` | a network and its search (`networks.py`) |
| `go9,simulations=800` | the same with 800 simulations a move; also `resign=-0.9`, `root=puct` (SEARCH_OPTIONS) |
| `raw:go9` | the network's prior alone |
| `shipped:go9` | a player that comes with the program; `raw:shipped:go9` is its prior alone |
| `gnugo:10` | GNU Go at a level |
| `leelaz:weights.txt,playouts=200` | Leela Zero with a weight file |
| `gtp:COMMAND` | any program that speaks GTP, by its command line |
| `rollout:5000` | Monte-Carlo tree search with 5,000 random games a move |
| `random` | a legal action, all equally likely |
"""

import re
from typing import NamedTuple

from zero.errors import ParamsError, did_you_mean
from zero.storage.manifests import NO_RESIGNATION

KINDS = ("random", "rollout", "gnugo", "leelaz", "gtp", "raw")
"""The text before the first colon or comma of a spec. Any other text there names a network, such as `go9` or
`shipped:go9`. The name of a network follows `raw:` too."""
KIND_PATTERN = re.compile("[:,]")
SEARCH_OPTIONS = {
    "root": None,
    "pass_wins": None,
    "considered_actions": "gumbel",
    "value_scale": "gumbel",
    "c_puct": "puct",
}
"""Search parameters that a spec can change, by their names in `params.yaml`, with the root rule that reads each."""
MAX_DIGITS = 18
OPTIONS = {
    "network": ("simulations", "resign", *SEARCH_OPTIONS),
    "raw": (),
    "leelaz": ("playouts",),
}


class PlayerSpec(NamedTuple):
    """A parsed player spec."""

    text: str
    kind: str  # one of KINDS, or "network"
    argument: str
    options: dict[str, str]

    @property
    def has_network(self) -> bool:
        """True if the argument names a network."""
        return self.kind in ("network", "raw")

    def with_argument(self, argument: str) -> "PlayerSpec":
        """The spec with another argument, and the same kind and options."""
        prefix = "" if self.kind == "network" else f"{self.kind}:"
        text = ",".join([f"{prefix}{argument}", *(f"{name}={value}" for name, value in self.options.items())])
        return PlayerSpec(text, self.kind, argument, self.options)

    def int_option(self, name: str, default: int, lowest: int, highest: int) -> int:
        """Value of an integer option, or `default` if the spec lacks it.

        Raises:
          ParamsError: it is not an integer in the range.
        """
        return self._int(name, self.options[name], lowest, highest) if name in self.options else default

    def int_argument(self, default: int, lowest: int, highest: int) -> int:
        """The argument as an integer, or `default` if it is empty.

        Raises:
          ParamsError: it is not an integer in the range.
        """
        return self._int(self.kind, self.argument, lowest, highest) if self.argument else default

    def resign_threshold(self) -> float:
        """The option `resign`: the player resigns below this value, in [-1, 1]; -1 means never.

        Raises:
          ParamsError: it is not a number in the range.
        """
        text = self.options.get("resign", str(NO_RESIGNATION))
        try:
            threshold = float(text)
        except ValueError:
            threshold = float("nan")
        if not -1.0 <= threshold <= 1.0:
            raise ParamsError(f"{self.text!r}: resign must be a number from -1 (never) to 1, got {text!r}")
        return threshold

    def _int(self, name: str, value: str, lowest: int, highest: int) -> int:
        # The length first: Python does not convert thousands of digits.
        if not value.isdecimal() or len(value) > MAX_DIGITS or not lowest <= int(value) <= highest:
            raise ParamsError(f"{self.text!r}: {name} must be an integer from {lowest} to {highest}, got {value!r}")
        return int(value)


def parse_player(text: str) -> PlayerSpec:
    """Parses a player spec. Networks, files and programs are looked up later, by `zero.players.build`.

    Raises:
      ParamsError: the player has no such option, or the spec names no network where one is required.
    """
    kind = KIND_PATTERN.split(text.strip(), maxsplit=1)[0]
    rest = text.strip()
    if kind in KINDS:
        rest = rest.removeprefix(kind).removeprefix(":")
    else:
        kind = "network"
    if kind == "gtp":  # a command line can contain commas
        return PlayerSpec(text, kind, rest, {})
    argument, *pairs = rest.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        known = OPTIONS.get(kind, ())
        if name not in known or not equals:
            hint = did_you_mean(name, list(known))
            raise ParamsError(f"{text!r}: unknown option {pair!r}{hint}; {kind} has: {', '.join(known) or 'none'}")
        options[name] = value
    if kind == "random" and argument:
        raise ParamsError(f"{text!r}: random has no setting; write random")
    if not argument and kind in ("network", "raw", "leelaz"):
        raise ParamsError(f"{text!r} does not name a player; write for example go9, raw:go9/gen-0012 or gnugo:10")
    return PlayerSpec(text, kind, argument, options)

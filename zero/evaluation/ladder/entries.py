"""Who is on a ladder: one entry for each way to play, never two ways in one.

An entry is known by the SHA-256 of what its player's play depends on (`PlayerId.kind` and `.settings`, not its name).
So a network with 32 simulations and the same network with 800 are two entries, with a rating each. The gate's players
have the settings that `zero match go9/gen-0012` gives that network: its games and those of matches are of one entry.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from zero.network.profile import local_precision
from zero.players.build import network_id
from zero.players.player import PlayerId
from zero.record.generation import Generation
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import Manifest, Sha256

WEIGHTS, SIMULATIONS = "weights", "simulations"
PRECISION = ("precision", "made_for_precision")
ANCHORS = {"gnugo": 1800.0, "rollout": 1500.0}
"""Given ratings: of GNU Go at level 10, or else of rollout MCTS. Any numbers would do, but they never change."""
ANCHOR_LEVEL = 10
CONDITIONS_DIGITS = 12


class Entry(Manifest):
    """One way to play."""

    key: Sha256
    name: str
    kind: str
    """network, gtp, rollout, random."""
    conditions: str
    """Of a network: digest of its settings without weights and precision; networks with equal ones are on one curve."""
    simulations: int | None
    """Of a network, a move."""
    generation: int | None
    """Of a champion of the lineage: the first that it was champion after."""
    text: str | None
    """How `zero match` starts it; None where that is not known."""


def key_of(player: PlayerId) -> str:
    """By what a ladder knows a player."""
    return sha256_bytes(canonical_json({"kind": player.kind, "settings": player.settings}))


def entry_of_player(player: PlayerId, generation: int | None = None, text: str | None = None) -> Entry:
    """The entry of a player."""
    conditions = ""
    if player.kind == "network":
        settings = {name: value for name, value in player.settings.items() if name not in (WEIGHTS, *PRECISION)}
        conditions = sha256_bytes(canonical_json(settings))[:CONDITIONS_DIGITS]
    simulations = player.settings.get(SIMULATIONS)
    return Entry(
        key=key_of(player),
        name=player.name,
        kind=player.kind,
        conditions=conditions,
        simulations=int(simulations) if simulations is not None and player.kind == "network" else None,
        generation=generation,
        text=text,
    )


def champions(generations: Sequence[Generation]) -> dict[str, Generation]:
    """The first generation after which each network was champion, by SHA-256, in that order."""
    found: dict[str, Generation] = {}
    for generation in generations:
        if generation.entry is not None:
            found.setdefault(generation.entry.champion, generation)
    return found


def champion_player(generation: Generation, simulations: int | None = None) -> PlayerId | None:
    """The champion after a generation with that generation's parameters; None where those cannot be read.

    Args:
      generation: the first after which it was champion.
      simulations: a move, in place of the gate's.
    """
    if generation.entry is None or generation.params is None:
        return None
    wanted = generation.params.gating.num_simulations if simulations is None else simulations
    params, precision = generation.params, local_precision(generation.params.profile)
    return network_id(generation.tag, generation.entry.champion, params, wanted, precision=precision)


def champion_text(generation: Generation, simulations: int | None = None) -> str:
    """How `zero match` starts that player."""
    return generation.tag if simulations is None else f"{generation.tag},simulations={simulations}"


def anchors(players: Iterable[PlayerId]) -> dict[str, float]:
    """Keys and given ratings of the players that may hold a scale, the best first: of rollouts those with most."""
    found = []
    for player in players:
        if player.kind == "gtp" and str(player.settings.get("engine", "")).startswith("GNU Go"):
            if player.settings.get("level") == ANCHOR_LEVEL:
                found.append((0, 0, key_of(player), ANCHORS["gnugo"]))
        elif player.kind == "rollout":
            found.append((1, -int(player.settings.get("playouts", 0)), key_of(player), ANCHORS["rollout"]))
    return {key: elo for _, _, key, elo in sorted(found)}


def told_apart(players: Sequence[PlayerId]) -> dict[str, str]:
    """A name for each key; players with one name and several keys also say in what they differ."""
    known = {key_of(player): player for player in players}
    same: dict[str, list[str]] = defaultdict(list)
    for key, player in sorted(known.items()):
        same[player.name].append(key)
    names: dict[str, str] = {}
    for name, keys in same.items():
        settings = [known[key].settings for key in keys]
        differing = sorted({s for each in settings for s in each if any(other.get(s) != each[s] for other in settings)})
        for key, each in zip(keys, settings, strict=True):
            shown = [f"{s} {str(each.get(s, 'none'))[:CONDITIONS_DIGITS]}" for s in differing]
            names[key] = ", ".join([name, *shown])
    return names

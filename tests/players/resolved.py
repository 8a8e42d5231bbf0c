"""Resolved players for tests."""

from pathlib import Path

from zero.players.build import NetworkSetup, resolve_player
from zero.players.spec import parse_player


def resolved_network(home: Path, text: str, for_session: bool = False) -> NetworkSetup:
    """The network, search and identity that a player spec refers to."""
    network = resolve_player(home, parse_player(text), for_session).network
    assert network is not None, f"{text} has no network"
    return network

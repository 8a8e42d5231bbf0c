"""A game in the terminal as a program of its own (`python -m tests.interop.terminal_program`)."""

from rich.console import Console

from tests.interop.engines import GO5, network_session
from zero.interop.terminal import TerminalGame

if __name__ == "__main__":
    TerminalGame(network_session(GO5), GO5, Console()).run()

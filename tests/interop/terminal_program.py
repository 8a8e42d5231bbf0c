"""A game in the terminal as a program of its own (`python -m tests.interop.terminal_program`)."""

from rich.console import Console

from tests.interop.engines import GO5, network_session
from zero.interop.terminal import play_in_terminal

if __name__ == "__main__":
    play_in_terminal(network_session(GO5), GO5, Console())

"""GNU Go 3.8 as an oracle."""

import pytest

from tests.oracle.gtp import GtpProgram, program_path

MISSING = "GNU Go is not installed (Debian package gnugo), so the comparison with it is left out"


def is_installed() -> bool:
    return program_path("gnugo") is not None


needs_gnugo = pytest.mark.skipif(not is_installed(), reason=MISSING)
"""Mark of a test that needs GNU Go."""


def suicide_option(allow_suicide: bool) -> str:
    return "--allow-all-suicide" if allow_suicide else "--forbid-suicide"


def gnugo_options(allow_suicide: bool) -> list[str]:
    """Command-line options for our rules."""
    return ["--positional-superko", suicide_option(allow_suicide)]


class GnuGo(GtpProgram):
    """A GNU Go process."""

    def __init__(self, *options: str) -> None:
        path = program_path("gnugo")
        assert path, MISSING
        super().__init__([path, "--mode", "gtp", *options])

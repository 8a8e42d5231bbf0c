"""`python -m zero` is the command `zero`, run by the code of the current folder."""

from zero.cli import main

main()

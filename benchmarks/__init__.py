"""How fast the parts are, each beside what it is to be measured by; `python -m benchmarks` or `make bench`.

A row of the table (`rows`) is a function in one of these modules. The work itself runs in children (`child`), pinned to
cores; the parent (`rounds`) lets the two sides of a ratio work in turn, so that both see the same machine. A benchmark
only counts and takes the time; that results are right is for the tests.
"""

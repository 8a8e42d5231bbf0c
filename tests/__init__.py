"""Tests; a package of its own name, for some library installs another `tests`."""

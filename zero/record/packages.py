"""The packages of a lineage's `constraints.txt`, compared with those that compute."""

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from zero.network.profile import LIBRARIES

COMPUTING = (*LIBRARIES, "openvino", "llvmlite")
"""Packages on which the bits of games and networks depend."""
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)


def installed_versions() -> dict[str, str]:
    """Versions of the installed packages in `COMPUTING`, by name."""
    found = {}
    for name in COMPUTING:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # OpenVINO is for CPUs alone
            continue
    return found


def differing_versions(constraints: str, versions: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Packages that have another version than the pinned one.

    Args:
      constraints: text of a `constraints.txt`.
      versions: versions by name; other names may be among them.

    Returns:
      The version and the pinned one, by name. A build such as `+cpu` counts only if the pin names one.
    """
    pins = dict(PIN.findall(constraints))
    return {
        name: (found, pins[name])
        for name, found in versions.items()
        if name in pins and pins[name] not in (found, found.partition("+")[0])
    }

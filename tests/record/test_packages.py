"""The packages that compute are those that a lineage pins."""

from importlib.metadata import version
from pathlib import Path

import pytest

from zero.errors import LineageError
from zero.lineage.registry import check_packages
from zero.record.packages import COMPUTING, differing_versions, installed_versions
from zero.storage.layout import CONSTRAINTS_FILE

PINS = """# pinned
numpy==2.4.6
openvino-telemetry==1.0  # not openvino
torch==2.13.0
torchvision==1.0
numba==0.68.1 ; python_version < "3.13"
"""


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"numpy": "2.4.6", "numba": "0.68.1", "openvino": "2026.4.1", "isa": "AVX512"}, {}),
        ({"torch": "2.13.0+cpu"}, {}),
        ({"torch": "2.11.0+cu130"}, {"torch": ("2.11.0+cu130", "2.13.0")}),
        ({"numba": "0.68.0"}, {"numba": ("0.68.0", "0.68.1")}),
    ],
)
def test_other_versions_than_the_pinned_ones_are_found(
    versions: dict[str, str], found: dict[str, tuple[str, str]]
) -> None:
    assert differing_versions(PINS, versions) == found


def test_a_pinned_build_is_compared_completely() -> None:
    assert differing_versions("torch==2.13.0+cpu\n", {"torch": "2.13.0+cu130"})
    assert not differing_versions("torch==2.13.0+cpu\n", {"torch": "2.13.0+cpu"})


def test_the_installed_packages_are_read() -> None:
    installed = installed_versions()
    assert installed["numpy"] == version("numpy") and set(installed) <= set(COMPUTING)


def test_a_workspace_that_pins_other_packages_is_not_prepared(tmp_path: Path) -> None:
    pins = tmp_path / CONSTRAINTS_FILE
    pins.write_text(f"numpy=={version('numpy')}\n")
    check_packages(tmp_path)
    pins.write_text("numpy==1.26.0\n")
    message = rf"pins numpy 1\.26\.0, but {version('numpy')} is installed; take the project's newer code"
    with pytest.raises(LineageError, match=message):
        check_packages(tmp_path)

"""Presets: parameter files to start a lineage with."""

from importlib import resources

from zero.errors import ParamsError, did_you_mean


def presets() -> list[str]:
    """Names of the presets."""
    folder = resources.files(__name__)
    return sorted(p.name.removesuffix(".yaml") for p in folder.iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """Text of a preset.

    Raises:
      ParamsError: the preset does not exist.
    """
    if name not in presets():
        raise ParamsError(f"unknown preset {name!r}{did_you_mean(name, presets())}; presets: {', '.join(presets())}")
    return (resources.files(__name__) / f"{name}.yaml").read_text()

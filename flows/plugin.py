"""A Prefect plugin: `prefect deployment run zero-generation` works in the project's folder.

Prefect calls `setup_environment` when it is imported in this folder, because `[tool.prefect]` of `pyproject.toml`
enables plugins here. The plugin completes the deployment's name to `zero-generation/zero-generation`, which the command
requires. It also sets the address of the server that `make up` started, unless another one is configured.
"""

import sys
from pathlib import Path

from prefect.plugins import HookContext, SetupResult, register_hook

from zero.config.settings import home_dir, servers

DEPLOYMENTS = ("zero-generation", "zero-campaign", "zero-ablation")
PROGRAMS = ("prefect", "-m")
"""First words of the command line: the program's name, or `-m` while `python -m prefect` imports Prefect."""


@register_hook
def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    """Completes the command line and the environment of a Prefect command typed in the project's folder.

    Raises:
      SystemExit: the command is about a deployment of this project, and no server is known.
    """
    # This hook runs before Prefect parses its command line.
    words = with_slash(sys.argv)
    ours = words != sys.argv
    sys.argv[:] = words
    if ctx.api_url:
        return None
    address = servers(home_dir()).get("prefect")
    if address is None:
        if ours:
            raise SystemExit(
                "no Prefect server runs here; start it with `make up`, or set PREFECT_API_URL to another one"
            )
        return None
    return SetupResult(env={"PREFECT_API_URL": f"{address}/api"}, note=f"the server of {home_dir()}")


def with_slash(words: list[str]) -> list[str]:
    """The command line, with a bare name of one of our deployments after `deployment VERB` completed."""
    if not words or Path(words[0]).name not in PROGRAMS or "deployment" not in words:
        return words
    for place in range(words.index("deployment") + 2, len(words)):
        if words[place] in DEPLOYMENTS:
            return [*words[:place], f"{words[place]}/{words[place]}", *words[place + 1 :]]
    return words

"""The command that serves the local web page."""

from typing import Annotated

import typer

from zero.cli.app import TOOLS, app
from zero.config.settings import home_dir


@app.command(rich_help_panel=TOOLS)
def web(
    host: Annotated[
        str, typer.Option(help="Name or address to listen on. Any other than loopback requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: the first free one from 8100.")] = 0,
    token: Annotated[
        str, typer.Option(help="Secret of the page; by default none on loopback, otherwise a random one.")
    ] = "",
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serves a page to play on and to look at recorded games, lineages and ratings; see docs/web.md. Ctrl-C ends it."""
    from contextlib import suppress

    from zero.web.server import serve

    def started(url: str) -> None:
        typer.echo(f"zero web: {url}")
        if open_page:
            typer.launch(url)

    with suppress(KeyboardInterrupt):
        serve(home_dir(), host, port, token, started)

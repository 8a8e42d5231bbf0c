"""Hooks of MkDocs (mkdocs.yml): the pages that are not files of `docs/`, and the links to them."""

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import griffe
import typer
import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from typer.cli import get_docs_for_click

from zero.cli.app import app
from zero.config.params import Params, Section

ROOT = Path(__file__).parent.parent
HELP_OPTION = "* `--help`: Show this message and exit.\n"
"""What every command has."""
PARAMETERS = "# All parameters\n\n[Parameters and presets](parameters.md) explains where to set them.\n"
BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"), ("multiple_of", "multiple of"))
"""Names of the bounds of a field, and their signs."""


def on_config(config: MkDocsConfig) -> None:
    """Puts every decision into the navigation."""
    decisions = sorted(
        path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).glob("decisions/*")
    )
    assert config.nav
    config.nav.append({"Decisions": decisions})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the results and the pages that are made from the code."""
    files.append(File.generated(config, "results.md", content=(ROOT / "RESULTS.md").read_text()))
    files.append(File.generated(config, "all-commands.md", content=commands_page()))
    files.append(File.generated(config, "all-parameters.md", content=parameters_page()))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Makes links between files of the repository links between pages of the site."""
    if page.file.src_uri == "results.md":
        markdown = markdown.replace("](docs/", "](").replace("](games)", "](play.md#as-an-engine)")
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./RESULTS\.md", r"](\1results.md", markdown)
    return re.sub(r"\]\((?:\.\./)+(zero/[\w/]+)\.py", lambda link: f"](api.md#{link[1].replace('/', '.')}", markdown)


def commands_page() -> str:
    """The texts of `zero --help` and of every command's `--help` as Markdown."""
    group = typer.main.get_group(app)
    context = typer.Context(group, info_name="zero")
    panels: dict[str, str] = {}
    for command in group.commands.values():
        if not command.hidden:
            assert isinstance(command, typer.core.TyperCommand)
            text = get_docs_for_click(obj=command, ctx=context, indent=2, call_prefix="zero")
            text = text.replace(HELP_OPTION, "").replace("**Options**:\n\n\n", "")
            panel = str(command.rich_help_panel)
            panels[panel] = panels.get(panel, "") + text
    records = filter(None, (option.get_help_record(context) for option in group.get_params(context)))
    options = "".join(f"* `{names}`: {text}\n" for names, text in records)
    page = f"# All commands\n\n{group.help}\n\n**Options**:\n\n{options}\n"
    page += "".join(f"## {panel}\n\n{text}" for panel, text in panels.items())
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", page)


def parameters_page() -> str:
    """A table per section of `params.yaml`: values and defaults from the models, meanings from the docstrings."""
    module = griffe.load("zero.config.params", search_paths=[ROOT])
    sections: list[tuple[str, type[Section]]] = [("Without a section", Params)]
    for name, field in Params.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        sections += [(name, kind) for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
    page = PARAMETERS
    for name, section in sections:
        page += f"\n## {name}\n\n{section.__doc__}\n\n| parameter | values | default | meaning |\n|---|---|---|---|\n"
        for field_name, field in section.model_fields.items():
            if docstring := module[section.__name__].all_members[field_name].docstring:
                default = "" if field.is_required() else f"`{to_json(field.default).decode()}`"
                meaning = " ".join(docstring.value.split())
                page += f"| `{field_name}` | {_values(field)} | {default} | {meaning} |\n"
    return page


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    bounds = [
        f"{sign} {bound:,}"
        for name, sign in BOUNDS
        for item in field.metadata
        if (bound := getattr(item, name, None)) is not None
    ]
    return ", ".join([getattr(field.annotation, "__name__", str(field.annotation)), *bounds])

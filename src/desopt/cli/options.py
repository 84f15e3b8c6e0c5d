"""Options that every command has, and help in groups for those with many."""

from __future__ import annotations

from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from desopt.run.options import Option

#: Whether an error shows its traceback.
debug = False


def _set_debug(value: bool) -> None:
    global debug
    debug = debug or value


Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error."),
]


def _load_plugins(modules: list[str]) -> list[str]:
    if modules:
        from desopt import plugins

        plugins.load(modules)
    return modules


Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        callback=_load_plugins,
        help="Module that registers methods, samplers or objectives; repeatable.",
    ),
]


class PlainCommand(TyperCommand):
    """A command whose help is plain text: typer 0.20 escapes its brackets for rich all the same."""

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class GroupedCommand(PlainCommand):
    """A command whose help lists its options under the headings of their ``rich_help_panel``.

    The choices of an option, where it has any, are looked up when help is shown: they are the
    keys of a registry, which takes long to import.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            _add_choices(param)
            record = param.get_help_record(ctx)
            if record is not None:
                heading = getattr(param, "rich_help_panel", None) or "Other options"
                groups.setdefault(heading, []).append(record)
        widest = max(len(names) for records in groups.values() for names, _ in records)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(names.ljust(widest), text) for names, text in records])


def _add_choices(param: Any) -> None:
    from desopt.run.options import options_of

    option = options_of("run").get(param.name)
    if option is not None and option.choices is not None:
        *most, last = option.choices()
        param.help = f"{option.help.rstrip('.')}: {', '.join(most)} or {last}."


def parameter(name: str, default: Any, kind: Any, **info: Any) -> Parameter:
    words = name.replace("_", "-")
    # what is not off by itself needs a word that turns it off
    switch = default is not False and kind in (bool, bool | None)
    names = f"--{words}/--no-{words}" if switch else f"--{words}"
    annotation = Annotated[kind, typer.Option(names, **info)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def declared(option: Option) -> Parameter:
    choices = option.choices
    return parameter(
        option.name, option.default_at("run"), option.kind, help=option.help,
        metavar=option.metavar, parser=option.parser, rich_help_panel=option.group,
        autocompletion=None if choices is None else lambda: list(choices()),
    )  # fmt: skip


def was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")

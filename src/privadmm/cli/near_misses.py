"""Hints for an option or a word that a command does not take.

Most of them exist elsewhere: as a key of the config, as an option of another command, or as an argument that is given
without an option. Click compares letters alone, and then offers --json for --epsilon.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import click
from typer.main import get_command

from privadmm.errors import listed

CONFIG = "CONFIG.toml"
LIKE, NEARLY = 0.6, 0.8  # similarity that suggests an option; if other commands have the word, more


def explained(error: click.UsageError) -> str:
    """The message of a usage error, and what to do."""
    if error.ctx is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption):
        hints = "; ".join(hints_for(error.option_name, error.ctx))
        return f"No such option {error.option_name!r}." + (f" {hints[:1].upper()}{hints[1:]}" if hints else "")
    message = error.format_message()
    extra = message.partition("Got unexpected extra argument")[2].strip("s ()")
    if any(sign in extra for sign in "/.") and "out" in names(error.ctx.command):
        return f"{message}. Where results go is said with --out {extra}"
    return message


def hints_for(option: str, ctx: click.Context) -> Iterator[str]:
    """Say which option was probably meant, or else where an option of this name exists."""
    word, command = option.lstrip("-"), ctx.command
    key = word.replace("-", "_")
    arguments = {param.name: param for param in command.params if isinstance(param, click.Argument)}
    takes = any(CONFIG in str(argument.metavar) for argument in arguments.values())
    sections = [f"[{section}] {key}" for section in with_key(key)] if takes else []
    others = [name for name in commands_with(word, ctx) if name != ctx.info_name]
    known = sections or others or key in arguments
    near = get_close_matches(word, names(command), 1, NEARLY if known else LIKE)
    if near:
        yield f"did you mean --{near[0]}?"
        return
    if (argument := arguments.get(key)) is not None:
        yield f"{argument.metavar or key.upper()} is given by itself, without an option"
        return
    if sections:
        yield f"set {listed(sections)} in {CONFIG}"
    if others:
        commands = listed([f"`privadmm {name}`" for name in others], "and")
        yield f"--{word} is an option of {commands}"


def names(command: click.Command) -> list[str]:
    """The options of a command, without their dashes."""
    return [
        name.lstrip("-")
        for param in command.params
        if isinstance(param, click.Option)
        for name in param.opts
        if name.startswith("--")
    ]


def with_key(key: str) -> list[str]:
    """The sections of the config that have this key, for some algorithm at least."""
    from privadmm.config.file import SECTIONS, known_algorithms
    from privadmm.params import fields_of

    sections = [section for section, table in SECTIONS.items() if key in fields_of(table)]
    of_method = any(key in fields_of(algorithm) for algorithm in known_algorithms(None).values())
    return [*sections, "algorithm"] if of_method and "algorithm" not in sections else sections


def commands_with(word: str, ctx: click.Context) -> list[str]:
    """The other commands that have this option."""
    group = ctx.parent.command if ctx.parent is not None else None
    if ctx.parent is not None and ctx.parent.parent is None:  # the program was made with this command alone
        from privadmm.cli import program

        group = get_command(program())
    if not isinstance(group, click.Group):
        return []
    commands = {name: command for name in group.list_commands(ctx) if (command := group.get_command(ctx, name))}
    return [name for name, command in commands.items() if word in names(command)]

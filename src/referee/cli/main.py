"""The `referee` command: what it is made of and how errors are shown. One file per subcommand."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer
import typer.core

from referee.cli import (
    attack,
    audit,
    batches,
    cache,
    calibrate,
    compare,
    demo,
    diff,
    docs,
    doctor,
    init,
    plan,
    prices,
    rejudge,
    report,
    score,
    serve,
    sim,
    watch,
)
from referee.cli.help import App
from referee.errors import RefereeError
from referee.report.plain import escaped
from referee.runtime.collector import collect_rarely
from referee.version import VERSION

GONE = 141
"""Exit status when the reader of our output went away, as the shell reports that signal."""


class _Commands(typer.core.TyperGroup):
    """The commands. A closed output pipe (| head) ends them without an error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command and flush its output, so that a closed pipe is noticed here."""
        try:
            done = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return done
        except BrokenPipeError:
            # Point stdout at nothing, so that the interpreter's own flush at exit stays quiet too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(GONE) from None


app = App(
    name="referee",
    cls=_Commands,
    help="An LLM judge as an RL reward, without making the GPU wait.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Summaries that fit a line of 80 columns; the rest is in each command's own help.
app.command("score", short_help="Judge a file of rollouts.")(score.command)
app.command("serve", short_help="Serve rewards over HTTP.")(serve.command)
app.command("init")(init.command)
app.command("doctor")(doctor.command)
app.add_typer(batches.app, name="batches")
app.add_typer(cache.app, name="cache")
app.command("plan", short_help="Say how long judging takes and what it costs.")(plan.command)
app.command("prices", short_help="List providers by name, and what their models cost.")(prices.command)
app.command("compare", short_help="Compare two sets of answers to the same prompts.")(compare.command)
app.command("diff", short_help="Compare two runs, sample by sample.")(diff.command)
app.command("calibrate", short_help="Say how far judges agree with people's labels.")(calibrate.command)
app.command("rejudge", short_help="Judge a run's samples again, with another judge.")(rejudge.command)
app.command("attack", short_help="Try shipped attacks on the judge.")(attack.command)
app.command("audit", short_help="Look for reward hacking in a finished run.")(audit.command)
app.command("watch", short_help="Show a run while it goes on.")(watch.command)
app.command("report", short_help="Write a page with charts and every sample.")(report.command)
app.command("sim", short_help="Run a simulated provider, to try things without a key.")(sim.command)
app.command("docs", short_help="Show a page of the documents, or find one.")(docs.command)
app.command("demo", short_help="Judge shipped rollouts with a small LLM on this CPU.")(demo.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"referee {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every attempt to stderr.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """An LLM judge as an RL reward, without making the GPU wait."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def main() -> None:
    """Run the command; our own errors are one clear message, not a traceback."""
    collect_rarely()
    try:
        app(standalone_mode=True)
    except RefereeError as error:
        typer.echo(f"error: {_shown(str(error))}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        logging.getLogger("referee").debug("what the system refused", exc_info=True)
        typer.echo(f"error: {_shown(f'{name}{error.strerror or error}')}", err=True)
        sys.exit(1)


def _shown(message: str) -> str:
    """Text of files may be in a message, and cannot act on the terminal. Its lines are kept."""
    return "".join(one if one.isprintable() or one in "\n\t" else escaped(one) for one in message)


if __name__ == "__main__":
    main()

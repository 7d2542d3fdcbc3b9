"""What all commands share: where the config is, and how a wrong use is told."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = Path("crossfade.yaml")
ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CROSSFADE_CONFIG", help="The config file.", dir_okay=False)
]


def who() -> str:
    """Return who gives this command, for the audit; a number where the system has no name for it, as in a container
    that runs as any user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@contextmanager
def faults_as_usage() -> Iterator[None]:
    """Turn a ``ValueError`` (bad config, unknown name), a file that cannot be read or written, or a package that is
    not installed into a message and exit code 2."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"crossfade: {error}", err=True)
        raise typer.Exit(2) from error
    except OSError as error:
        if error.filename is None:  # no file's fault: a defect, or a network that nobody has put into words
            raise
        typer.echo(f"crossfade: {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(2) from error
    except ModuleNotFoundError as error:
        hint = (
            "pip install 'crossfade[compare]' (comparison, dashboard), [onprem] (model server), [demo] (the demo's and "
            "the sweep's pictures), [parquet] (export)"
        )
        typer.echo(f"crossfade: this command needs the package {error.name}, which is not installed: {hint}", err=True)
        raise typer.Exit(2) from error

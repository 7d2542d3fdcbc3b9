"""A ramp as text for a terminal."""

from __future__ import annotations

from datetime import UTC

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compare.ramps import RampState


def render_state(state: RampState) -> RenderableType:
    """Return where a ramp is, what it waits for, and its newest moves."""
    ramp = state.ramp
    steps = " → ".join(f"{step} %" for step in state.plan.steps)
    if ramp is None:
        return Text(f"{state.route}: no ramp yet (steps {steps}). Begin: crossfade ramp start {state.route}")
    lines = [
        Text(f"{state.route}: {ramp.phase.value} at {ramp.percent} % of {steps}", style="bold"),
        Text(f"since {ramp.entered_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, by {ramp.by}: {ramp.reason}"),
        Text(f"served by the candidate at this step: {ramp.candidate.requests:,}, errors {ramp.candidate.errors:,}"),
    ]
    lines += [Text(f"waits: {reason}") for reason in ramp.waiting]
    if not ramp.settled:
        lines.append(Text("the toggle is not written yet", style="yellow"))
    if ramp.phase.watched:
        unwatched = Text("nobody watches it: crossfade ramp run", style="bold red")
        lines.append(Text(f"driven by {state.driver}") if state.driver else unwatched)
    table = Table("at (UTC)", "phase", "candidate", "by", "reason")
    for move in state.moves:
        shares = f"{move.before} → {move.after} %"
        table.add_row(f"{move.at.astimezone(UTC):%m-%d %H:%M:%S}", move.phase.value, shares, move.by, Text(move.reason))
    return Group(*lines, table)

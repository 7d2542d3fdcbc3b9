"""The folded state of each route, kept in the store beside the measurements it was folded from.

``advance`` folds what was measured since the state was saved and saves it again. Two at once do not count twice: a save
is made only where the stored state is still the one that was started from; who comes second starts again from what the
first has saved. A process that dies in between loses the time and nothing else. Measurements of a route are stored in
the order of the record, so none ever appears behind the state's sequence.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
    select,
)

from compare.epochs import Epoch
from compare.policy import Policy, measurement_key
from compare.results import Results
from compare.state import RouteState, fold, state_from_bytes, state_key
from shadow.store.database import insert_into, writing
from shadow.store.rows import microseconds
from shadow.store.schema import exchanges

metadata = MetaData()
states = Table(
    "route_states",
    metadata,
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("route", "key"),
)
_PAGE = 1000


class States:
    """The states of all routes. Safe to use from several processes."""

    def __init__(self, engine: Engine, results: Results) -> None:
        """Use ``engine``, the store's own, and create the table where it is missing."""
        self._engine = engine
        self._results = results
        with writing(engine).begin() as connection:
            metadata.create_all(connection)

    def load(self, policy: Policy) -> RouteState:
        """Return the saved state, an empty one where there is none. (Of another version there is none: the version is
        part of the key.)"""
        query = select(states.c.body).where(states.c.route == policy.route, states.c.key == state_key(policy))
        with self._engine.connect() as connection:
            data = connection.execute(query).scalar_one_or_none()
        if data is None:
            return RouteState()
        return state_from_bytes(data)

    def advance(self, policy: Policy, state: RouteState | None = None) -> RouteState:
        """Fold what is new and save; return the state. A ``state`` that an earlier call returned is taken further, so
        that nothing has to be read back. Blocks."""
        key = measurement_key(policy)
        state = self.load(policy) if state is None else state
        while True:
            since = state.sequence
            new = self._results.measurements(policy.route, key, after_sequence=since, limit=_PAGE)
            if not new:
                return state
            fold(new, policy, state)
            if not self._save(policy, state, since):
                state = self.load(policy)

    def present_epoch(self, policy: Policy) -> Epoch:
        """Return the epoch of all that is measured now. Blocks; saves what it folds."""
        return self.advance(policy).epochs.present

    def since(self, policy: Policy, moment: datetime) -> RouteState:
        """Return the fold of what was received from a moment on, by itself. Reads all of it; nothing is saved."""
        first = select(func.min(exchanges.c.sequence)).where(
            exchanges.c.route == policy.route, exchanges.c.received_at_us >= microseconds(moment)
        )
        with self._engine.connect() as connection:
            begin = connection.execute(first).scalar_one()
        state = RouteState(sequence=(begin or 0) - 1)
        while begin is not None and (
            new := self._results.measurements(policy.route, measurement_key(policy), state.sequence, limit=_PAGE)
        ):
            fold((m for m in new if m.received_at >= moment), policy, state)
            state.sequence = new[-1].sequence
        return state

    def _save(self, policy: Policy, state: RouteState, since: int) -> bool:
        """Save the state if the stored one still ends at ``since``; return whether it was."""
        where = {"route": policy.route, "key": state_key(policy)}
        query = select(states.c.sequence).where(states.c.route == where["route"], states.c.key == where["key"])
        body = state.to_bytes()
        with writing(self._engine).begin() as connection:
            stored = connection.execute(query).scalar_one_or_none()
            if (stored or 0) != since:
                return False
            row = insert_into(states, connection).values(**where, sequence=state.sequence, body=body)
            new = {"sequence": state.sequence, "body": body}
            connection.execute(row.on_conflict_do_update(index_elements=["route", "key"], set_=new))
        return True

"""One pair: what is the matter with it in a sentence, both answers, their numbers, their way through time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from compare.dashboard.fields import Field, build_fields
from compare.dashboard.texts import Text, mark_differences
from compare.dashboard.views.asked import Asked, build_asked, build_curl, header_rows
from compare.dashboard.views.timeline import Lane, lay_lanes
from compare.dashboard.views.words import (
    CLASSES,
    FAILED,
    NOT_JUDGED,
    REFUSED,
    Badge,
    duration,
    moment,
    number,
    size,
)
from compare.measurement import Leg, Measurement
from compare.phrases import Phrase, joined, plain, say
from compare.policy import Kind, Policy
from shadow.exchange import Body, Exchange, Observation, Role

PURGED = say("Not kept any more: only hash and size of this body are.")
NO_BODY = say("No body came.")
_OUTLINES = {Kind.FACE_BLUR: say("blurred regions"), Kind.ERASE: say("mask")}
"""What can be drawn over the pictures of a route."""
_MORE_IS_BETTER = ("psnr_db", "ssim", "ssimulacra2", "iou")
_NAMES = {
    "psnr_db": say("PSNR, dB"),
    "ssim": say("SSIM of the whole"),
    "tile_ssim": say("SSIM of the lowest tile"),
    "ssimulacra2": say("SSIMULACRA2, 100 is the same"),
    "tile_mae": say("error of the worst tile"),
    "tile_bias": say("colour cast, worst tile"),
    "patch_mae": say("error, worst 8 x 8 patch"),
    "worst_tile": say("worst tile at x, y"),
    "inside_ssim": say("SSIM inside of the mask"),
    "iou": say("overlap of the outlines (IoU)"),
    "alpha_mad": say("mean difference of alpha"),
    "band": say("judged as"),
    "size_bytes": say("size, bytes"),
}


@dataclass(frozen=True, slots=True)
class BodyFacts:
    """What the store still has of a body: ``picture`` is (format, width, height) when it can be drawn."""

    kept: bool = False
    picture: tuple[str, int, int] | None = None
    text: Text = field(default_factory=Text)


@dataclass(frozen=True, slots=True)
class Side:
    """One answer as the page shows it. ``width`` and ``height`` are those of the picture as it is drawn."""

    role: str
    name: str
    tone: str
    caption: str
    kept: bool
    picture: bool
    width: int
    height: int
    note: str
    text: Text


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The (id, query) of the pairs before and after this one in the list that the visitor came from."""

    previous: tuple[str, str] | None = None
    next: tuple[str, str] | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class PairPage:
    """Everything on the page. ``headers`` rows are (field, the value of each side); ``fields`` is the tree of two JSON
    documents; ``alpha`` says whether a picture may be transparent."""

    id: str
    route: str
    received_at: datetime
    headline: str
    badge: Badge
    sentences: tuple[str, ...]
    sides: tuple[Side, ...]
    difference: bool
    no_difference: str
    numbers: tuple[tuple[str, str], ...]
    no_numbers: str
    lanes: tuple[Lane, ...]
    request: Asked
    headers: tuple[tuple[str, tuple[str, ...]], ...]
    around: Neighbours
    outlines: str
    tile: str
    full_width: int
    curl: str
    fields: Field | None
    alpha: bool

    @property
    def comparable(self) -> bool:
        """Whether two pictures can be laid on each other."""
        return self.difference and len(self.sides) == 2

    @property
    def short(self) -> str:
        return self.id[:8]

    @property
    def moment(self) -> str:
        return moment(self.received_at)

    @property
    def pictures(self) -> bool:
        return any(side.picture for side in self.sides)


def build_pair_page(
    exchange: Exchange,
    policy: Policy | None,
    measurement: Measurement | None,
    bodies: dict[str, BodyFacts],
    around: Neighbours,
    view_side: int,
) -> PairPage:
    """Return the page. ``bodies`` is by role, ``request`` included; ``view_side`` bounds a drawn picture's sides."""
    legs = orient(exchange, policy)
    sides = _texts_compared([_side(*leg, bodies.get(leg[0].value, BodyFacts()), view_side) for leg in legs])
    badge = badge_of(measurement)
    headline, sentences = _say(measurement, badge)
    sizes, request = _sizes(sides, bodies), bodies.get("request", BodyFacts())
    return PairPage(
        id=exchange.id,
        route=exchange.route,
        received_at=exchange.received_at,
        headline=headline,
        badge=badge,
        sentences=sentences,
        sides=tuple(sides),
        difference=len(sizes) == 2 and sizes[0] == sizes[1],
        no_difference=_no_difference(sides, sizes),
        numbers=_numbers(measurement, policy),
        no_numbers=_no_numbers(measurement),
        lanes=lay_lanes([(name, tone, leg) for _, name, tone, leg in [*legs, *_control(exchange)]]),
        request=build_asked(exchange, kept=request.kept, picture=request.picture is not None),
        headers=header_rows([leg[3].headers for leg in legs]),
        around=around,
        outlines=_OUTLINES.get(policy.kind, "") if policy is not None else "",
        tile=_tile(measurement),
        full_width=sizes[0][0] if sizes else 0,
        curl=build_curl(exchange),
        fields=_fields_of(sides, tolerated=badge.tone == "promote"),
        alpha=any(facts.picture is not None and facts.picture[0] != "JPEG" for facts in bodies.values()),
    )


def _tile(measurement: Measurement | None) -> str:
    """Return the left and top of the worst tile, empty where none was measured."""
    found = measurement.judgement.numbers.get("worst_tile") if measurement is not None else None
    return found.replace(" ", "") if isinstance(found, str) else ""


def orient(exchange: Exchange, policy: Policy | None) -> list[tuple[Role, str, str, Observation]]:
    """Return (role, name, tone, observation) of the legs, baseline first where the policy says which that is."""
    legs = [(role, o) for role, o in exchange.observations() if role is not Role.CONTROL]
    if policy is None:
        return [(role, _leg_name(o, role.value), "baseline", o) for role, o in legs]
    names = {policy.baseline: ("baseline", 0), policy.candidate: ("candidate", 1)}
    ordered = sorted(legs, key=lambda leg: names.get(leg[1].backend, ("", 2))[1])
    named = [(role, o, names.get(o.backend, ("noise", 2))[0]) for role, o in ordered]
    return [(role, _leg_name(o, tone if tone != "noise" else role.value), tone, o) for role, o, tone in named]


def _leg_name(leg: Observation, part: str) -> Phrase:
    return say("{backend} ({part})", backend=leg.backend, part=plain(part))


def badge_of(measurement: Measurement | None) -> Badge:
    """Return the class of a pair, or that both sides refused, a leg gave no answer, or it was not compared."""
    if measurement is None:
        return NOT_JUDGED
    if measurement.judgement.output_class is not None:
        return CLASSES[measurement.judgement.output_class]
    if measurement.both_refused:
        return REFUSED
    failed = [side for side in (measurement.baseline, measurement.candidate) if side is not None and side.failure]
    return FAILED if failed else NOT_JUDGED


def _control(exchange: Exchange) -> list[tuple[Role, str, str, Observation]]:
    if exchange.control is None:
        return []
    return [
        (Role.CONTROL, say("{backend} again (control)", backend=exchange.control.backend), "noise", exchange.control)
    ]


def _say(measurement: Measurement | None, badge: Badge) -> tuple[str, tuple[str, ...]]:
    """Return the headline and what else is to be said."""
    if measurement is None:
        return say("This request has not been compared yet; run {command}.", command="crossfade compare"), ()
    said: list[str] = [d.sentence for d in measurement.judgement.diagnoses]
    if measurement.both_refused:
        return _sentence(measurement.judgement.note), (say("There is no output to compare, and no wait for one."),)
    said += [_failure(leg) for leg in (measurement.baseline, measurement.candidate) if leg is not None and leg.failure]
    if measurement.not_comparable is not None:
        why = measurement.judgement.note or plain(measurement.not_comparable.value)
        said.append(say("Not compared: {why}.", why=why))
    elif measurement.judgement.note and not said:
        said.append(measurement.judgement.note)
    if not said:
        return {
            "identical": say("Both answers are identical."),
            "equivalent": say("Both answers are the same within what this route tolerates."),
        }.get(badge.word, say("The answers are {word}.", word=badge.word)), ()
    head, _, tail = (said[0], "", "") if isinstance(said[0], Phrase) else said[0].partition(": ")
    return _sentence(head), tuple(_sentence(text) for text in (tail, *said[1:]) if text)


def _failure(leg: Leg) -> str:
    return say("No good answer from {backend}: {failure}.", backend=leg.backend, failure=plain(leg.failure or ""))


def _sentence(text: str) -> str:
    """Return what a kernel says with its full stop; the style sheet makes its first letter a capital."""
    whole = text.endswith((".", "!", "?", ":"))
    if isinstance(text, Phrase):
        return text if whole else say("{sentence}.", sentence=text)
    return text if whole else f"{text}."


def _side(role: Role, name: str, tone: str, leg: Observation, facts: BodyFacts, view_side: int) -> Side:
    width = height = 0
    if facts.picture is not None:
        _, width, height = facts.picture
        scale = min(1.0, view_side / max(width, height, 1))
        width, height = max(1, round(width * scale)), max(1, round(height * scale))
    note = _body_note(leg.body, facts)
    return Side(
        role.value,
        name,
        tone,
        _caption(leg, facts),
        facts.kept,
        facts.picture is not None,
        width,
        height,
        note,
        facts.text,
    )


def _body_note(body: Body | None, facts: BodyFacts) -> str:
    if body is None or body.size_bytes == 0:
        return NO_BODY
    return "" if facts.picture else facts.text.note or (PURGED if not facts.kept else say("This body is no picture."))


def _caption(leg: Observation, facts: BodyFacts) -> str:
    parts: list[str] = [str(leg.status) if leg.status is not None else say("no status")]
    if leg.failure is not None:
        parts.append(plain(leg.failure.kind.value))
    if leg.body is not None:
        parts.append(leg.body.media_type[:80] or say("no type"))
        if facts.picture is not None:
            parts.append(f"{facts.picture[1]} x {facts.picture[2]}")
        parts.append(size(leg.body.size_bytes))
    parts.append(duration(leg.total_s))
    return joined(" · ", parts)


def _texts_compared(sides: list[Side]) -> list[Side]:
    if len(sides) != 2 or any(side.picture for side in sides):
        return sides
    texts = mark_differences(sides[0].text, sides[1].text)
    return [replace(side, text=text) for side, text in zip(sides, texts, strict=True)]


def _fields_of(sides: Sequence[Side], *, tolerated: bool) -> Field | None:
    if len(sides) != 2 or any(side.picture for side in sides):
        return None
    return build_fields(sides[0].text.json, sides[1].text.json, tolerated=tolerated)


def _sizes(sides: Sequence[Side], bodies: dict[str, BodyFacts]) -> list[tuple[int, int]]:
    """Return (width, height) of each side that is a picture."""
    drawn = [bodies[side.role].picture for side in sides if side.picture]
    return [(picture[1], picture[2]) for picture in drawn if picture is not None]


def _no_difference(sides: Sequence[Side], sizes: Sequence[tuple[int, int]]) -> str:
    if len(sides) < 2:
        return say("There is one answer only.")
    if len(sizes) < 2:
        return say("It takes two pictures to show a difference.")
    one, other = (f"{width} x {height}" for width, height in sizes[:2])
    return say("{one} against {other}: pictures of different sizes cannot be laid on each other.", one=one, other=other)


def _numbers(measurement: Measurement | None, policy: Policy | None) -> tuple[tuple[str, str], ...]:
    if measurement is None:
        return ()
    numbers = measurement.judgement.numbers
    bands: dict[str, object] = {}
    if policy is not None:
        kind = numbers.get("band", policy.kind.value)
        allowed = {each.name: getattr(policy.image, each.name) for each in fields(policy.image)}
        bands = {name: allowed.get(f"{kind}_{name}") for name in numbers}
    return tuple(
        (_NAMES.get(n, plain(n)), _against(n, value, bands.get(n))) for n, value in numbers.items() if value is not None
    )


def _against(name: str, value: object, band: object) -> str:
    """Return a number with what its route asks for, where it asks for anything."""
    if band is None or value is None:
        return number(value)
    if name.endswith(_MORE_IS_BETTER):
        return say("{value} (at least {limit})", value=number(value), limit=number(band))
    return say("{value} (at most {limit})", value=number(value), limit=number(band))


def _no_numbers(measurement: Measurement | None) -> str:
    if measurement is None:
        return say("Numbers appear once the comparison has come to this pair.")
    return say("The same bytes on both sides.") if measurement.same_bytes else say("There was nothing to measure.")

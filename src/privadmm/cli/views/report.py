"""What `privadmm report` prints: the first lines of the page, and where it is."""

from collections.abc import Mapping
from pathlib import Path

from privadmm.cli.views import screen
from privadmm.runs.metrics import amount
from privadmm.runs.report import words
from privadmm.runs.report.card import Card


def told(card: Card, written: Mapping[str, str]) -> str:
    said = words.sentence(card.epsilon, card.delta, card.adjacency, card.simulation)
    figure = "[bold red]not private[/]" if card.epsilon is None or card.delta is None else None
    facts: screen.Facts = [
        (card.kind, Path(card.subject)),
        ("mode", "SIMULATION: it protects nobody" if card.simulation else "deployment"),
        ("status", screen.escape(card.status)),
        ("guarantee", figure or words.notation(card.epsilon or 0.0, card.delta or 0.0, card.adjacency)),
        ("", said),
        ("of a person", None if card.person is None else words.of_person(card.person, card.delta)),
        ("warning", screen.alarm(card.epsilon_warning)),
        ("refused", refused(card)),
        *((name, Path(place)) for name, place in written.items()),
    ]
    return screen.shown(screen.rows(facts))


def refused(card: Card) -> str:
    if card.refusals is None:
        return screen.escape(words.not_here(card.kind, card.refusals_at))
    return amount(len(card.refusals), "request")

"""What an epsilon means for one record, in plain figures; and the warning that it means little.

Suppose that somebody knows all other records, holds a suspicion about one record to be as likely as not, and reads all
that is released. By the definition of epsilon the odds of 1 to 1 become e^epsilon to 1 at most, apart from delta: this
person may be e^epsilon/(1 + e^epsilon) sure: 73 % at epsilon = 1, 88 % at 2, 95 % at 3 and over 99.9 % at 8.

From LARGE = 3 on there is a warning: there a single reading may bring what is often taken for proof, odds of 19
to 1. All of it follows from public facts. Figures are rounded up, and never to certainty.

A delta of one over the number of records, or more, has a warning too: publishing each record whole with that
probability keeps the promise, and would expose one of them or more on average.
"""

import math

from privadmm.privacy.accounting import printed

LARGE = 3.0
MANY = 1000  # the number of records that is assumed where nobody said it
FALSELY = 0.05  # how often an accuser may be wrong, in the sentence that explains epsilon
ONE = {"replace-one": "record", "label": "label", "person": "person's row at one party", "column": "column"}
ONE["people"] = "person's rows at all parties together"  # where parties hold columns


def power(epsilon: float, delta: float, falsely: float = FALSELY) -> float:
    """How often at most a test confirms a true suspicion, if it confirms wrong ones at the rate `falsely` at most.

    It follows from (epsilon, delta) for every test between two neighbours, in both directions.
    """
    with_odds = math.exp(min(epsilon, 700.0)) * falsely + delta
    from_below = 1 - math.exp(-epsilon) * (1 - falsely - delta)
    return max(falsely, min(1.0, with_odds, from_below))


def sure(epsilon: float) -> float:
    """How sure somebody may become of a suspicion that was as likely as not before."""
    return 1 / (1 + math.exp(-epsilon))


def of_hundred(share: float, limit: str = "") -> str:
    """A percentage for people, after the words of a limit if given; "more than 99.9" in place of 100."""
    text = printed(100 * share, ".1f")
    return "more than 99.9" if float(text) >= 100 else f"{limit}{text}"


def weak_from() -> str:
    """The epsilon from which on a promise is weak, and why, in words."""
    return (
        f"from epsilon = {LARGE:g} on: a suspicion about one record that was as likely as not may then become "
        f"{of_hundred(sure(LARGE))} % sure, and ever more"
    )


def large_epsilon(epsilon: float | None, of: str = "replace-one", label_epsilon: float | None = None) -> str | None:
    """The warning, if an epsilon promises little; None if it is below LARGE, or nothing is promised at all.

    of             what epsilon protects, a key of ONE
    label_epsilon  the epsilon with which labels are randomised, if they are
    """
    promises = (("epsilon", epsilon, of), ("label_epsilon", label_epsilon, "label"))
    # A promise of 3 may come out as 2.9999999999.
    weak = [(name, e, ONE[what]) for name, e, what in promises if e is not None and float(printed(e)) >= LARGE]
    if not weak:
        return None
    named = " and ".join(f"{name} = {printed(e)}" for name, e, _ in weak)
    first, *second = [(what, of_hundred(sure(e))) for _, e, what in weak]
    more = "".join(f", and {may} % sure of one about one {what}" for what, may in second)
    frontier = ": `privadmm frontier` says what each epsilon leaves of the accuracy" if of == "replace-one" else ""
    return (
        f"{named} {'are weak promises' if second else 'is a weak promise'}: somebody who takes a suspicion about one "
        f"{first[0]} for as likely as not may be {first[1]} % sure of it{more} after reading what is released; at "
        f"epsilon = 1 it is {of_hundred(sure(1.0))} %. Choose 1 or less where you can{frontier}"
    )


def large_delta(delta: float, count: int | None, what: str = "records") -> str | None:
    """The warning, if delta is 1/count or more; where the count is not known, if it is 1/MANY or more."""
    if delta * (MANY if count is None else count) < 1:
        return None
    if count is None:
        return (
            f"delta = {delta:g} promises nothing about {math.ceil(1 / delta):,} {what} or more: publishing each as it "
            "is with probability delta would keep it. Choose a delta well below one over the number of them"
        )
    enough = 10.0 ** math.floor(math.log10(0.1 / count))
    return (
        f"delta = {delta:g} is not below 1/{count}, one over the number of {what}, and then promises nothing: "
        f"publishing each as it is with probability delta, about {delta * count:.3g} of {count}, would keep it. "
        f"Choose delta = {enough:g} or less"
    )

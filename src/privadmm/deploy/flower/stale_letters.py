"""Keeps a node's answers in step with its letters when a run ends while the node takes a letter of it.

Flower's node takes a letter, waits until there is any answer, sends that, and takes the next letter. If a run ends
while a letter of it is fetched, the node waits for no answer to it, and yet leaves its task open. The answer, or an
error in its place, goes out when the answer to the next letter is due, and every answer after it is one letter late.
"""

from types import ModuleType
from typing import Any


def keep_in_step(main: ModuleType) -> None:
    """Have Flower's node send answers until that to its last letter is among them. `main` is the node's main loop."""
    take, push, fetch, over = (
        main._pull_and_store_message,
        main._push_messages,
        main.pull_objects,
        main.RunNotRunningException,
    )
    last = ""  # the id of the letter that was taken last

    def take_and_note(*, receive: Any, **named: Any) -> Any:
        def noted() -> Any:
            nonlocal last
            if (found := receive()) is not None:
                last = found[0].metadata.message_id
            return found

        return take(receive=noted, **named)

    def push_until_answered(*, send: Any, **named: Any) -> None:
        answered = set()

        def noted(answer: Any, *given: Any) -> Any:
            answered.add(answer.metadata.reply_to_message_id)
            return send(answer, *given)

        while last not in answered:
            push(send=noted, **named)  # waits until there is an answer

    def fetch_or_fail(*given: Any, **named: Any) -> Any:
        try:
            return fetch(*given, **named)
        except over:  # is no Exception, and Flower ends the task of a letter only after one
            raise RuntimeError("its run is over") from None

    main.__dict__.update(
        _pull_and_store_message=take_and_note, _push_messages=push_until_answered, pull_objects=fetch_or_fail
    )

"""Keeps a node's answers in step with its letters, also where a run or the process that answers ends at a bad moment.

Flower's node takes a letter, waits until there is any answer, sends that, and takes the next letter. If a run ends
while a letter of it is fetched, the node waits for no answer to it, and yet leaves its task open. The answer, or an
error in its place, goes out when the answer to the next letter is due, and every answer after it is one letter late.

If the process that answers ends after it took its task and before it read the letter, or without leaving an answer,
nobody will answer, and the node would wait for ever. An error then goes out in the answer's place, and whoever asked
asks again. That charges nothing twice: the same letter is answered from the ledger with the same bytes, once it was
answered there, and a deployment's step that died in between has locked its ledger.
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


def end_unanswered(states: ModuleType) -> None:
    """Have a node answer with an error a letter whose task is over. `states` is Flower's module of a node's state."""
    kind, crashed = states.InMemoryNodeState, states.CLIENT_APP_CRASHED_ERROR
    client, over = states.TaskType.CLIENT_APP, "finished"
    finish, expire = kind.finish_task, kind._on_task_tokens_expired

    def alone(state: Any, tasks: Any) -> set[int]:
        """Runs of these tasks for which no other process is at work, or will be."""
        at_work = {one.run_id for one in state.task_store.values() if one.type == client and one.status.status != over}
        return {one.run_id for one in tasks if one.type == client} - at_work

    def count_as_read(state: Any, runs: set[int]) -> None:
        """Flower's errors are for letters that were read."""
        with state.lock_msg_store:
            for entry in state.msg_store.values():
                letter = entry.message.metadata
                if letter.run_id in runs and not letter.reply_to_message_id and not entry.is_retrieved:
                    entry.is_retrieved = True
                    state.record_message_processing_start(letter.message_id)

    def finished(self: Any, task_id: int, sub_status: str, details: str) -> bool:
        done: bool = finish(self, task_id, sub_status, details)
        if done:
            with self.lock_task_store:  # held to the end: a letter is stored after its task, so it is none of these
                runs = alone(self, [self.task_store[task_id]])
                count_as_read(self, runs)
                self._store_error_replies(runs, crashed)  # except for letters that have an answer
        return done

    def expired(self: Any, tasks: Any) -> None:  # Flower holds lock_task_store
        count_as_read(self, alone(self, tasks))
        expire(self, tasks)

    kind.finish_task, kind._on_task_tokens_expired = finished, expired

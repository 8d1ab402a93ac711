"""Keeps a node's answers in step with its letters, even if a run or an answering process ends at a bad moment.

Flower's node takes a letter, waits until there is any answer, sends that, and takes the next letter. If a run ends
while one of its letters is fetched, the node does not wait for the answer, but leaves the letter's task open. That
answer, or an error, then goes out when the next letter's answer is due, and all later answers are one letter late.

If an answering process ends after it took its task and before it read the letter, or without leaving an answer, nobody
will answer, and the node would wait for ever. An error then goes out in place of the answer, and the coordinator asks
again. That charges nothing twice: a letter that was answered gets the same bytes from the ledger, and a deployment's
step that died halfway has locked its ledger.
"""

from types import ModuleType
from typing import Any


def keep_in_step(main: ModuleType) -> None:
    """Make Flower's node send answers until its last letter is answered. `main` is the node's main loop."""
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
            if (taken := receive()) is not None:
                last = taken[0].metadata.message_id
            return taken

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
        except over:  # no subclass of Exception; Flower ends a letter's task only after an Exception
            raise RuntimeError("its run is over") from None

    main.__dict__.update(
        _pull_and_store_message=take_and_note, _push_messages=push_until_answered, pull_objects=fetch_or_fail
    )


def end_unanswered(states: ModuleType) -> None:
    """Make a node answer with an error if a letter's task is over. `states` is Flower's module of a node's state."""
    kind, crashed = states.InMemoryNodeState, states.CLIENT_APP_CRASHED_ERROR
    client, over = states.TaskType.CLIENT_APP, "finished"
    finish, expire = kind.finish_task, kind._on_task_tokens_expired

    def alone(state: Any, tasks: Any) -> set[int]:
        """The runs of these tasks, except runs for which another process is at work or waits."""
        known = state.task_store.values()
        at_work = {task.run_id for task in known if task.type == client and task.status.status != over}
        return {task.run_id for task in tasks if task.type == client} - at_work

    def count_as_read(state: Any, runs: set[int]) -> None:
        """Mark these runs' letters as read: Flower sends errors only for letters that were read."""
        with state.lock_msg_store:
            for entry in state.msg_store.values():
                letter = entry.message.metadata
                if letter.run_id in runs and not letter.reply_to_message_id and not entry.is_retrieved:
                    entry.is_retrieved = True
                    state.record_message_processing_start(letter.message_id)

    def finished(self: Any, task_id: int, sub_status: str, details: str) -> bool:
        done: bool = finish(self, task_id, sub_status, details)
        if done:
            with self.lock_task_store:  # held to the end, so that no letter of a new task is among these
                runs = alone(self, [self.task_store[task_id]])
                count_as_read(self, runs)
                self._store_error_replies(runs, crashed)  # except for letters that have an answer
        return done

    def expired(self: Any, tasks: Any) -> None:  # Flower holds lock_task_store
        count_as_read(self, alone(self, tasks))
        expire(self, tasks)

    kind.finish_task, kind._on_task_tokens_expired = finished, expired

"""A run ends while a node takes a letter of it: the answers to later letters are not late."""

import threading
import time
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from privadmm.deploy.flower.stale_letters import keep_in_step

OLD, NEW = 7, 8  # runs


@pytest.fixture(params=["Flower's own", "in step"])
def main(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The node's main loop, as Flower has it and as privadmm's node has it."""
    for name in ("_pull_and_store_message", "_push_messages", "pull_objects"):
        monkeypatch.setattr(start_client_internal, name, getattr(start_client_internal, name))  # as it was, at the end
    for name, number in (("_task_id", 5), ("_run_id", OLD), ("_node_id", 1)):  # of whoever sends a letter
        monkeypatch.setattr(TaskIdentity, name, number)
    if request.param == "in step":
        keep_in_step(start_client_internal)
    return start_client_internal


class Node:
    """A node's state, and its loop's two steps."""

    def __init__(self, main: Any) -> None:
        self.main, self.store = main, InMemoryObjectStore()
        self.state = InMemoryNodeState(self.store)
        self.state.set_node_id(1)
        self.sent: list[str] = []  # ids of the letters that were answered
        for run in (OLD, NEW):
            self.state.store_run(Run.create_empty(run))

    def take(self, run: int, over_at: str = "") -> Message:
        """Take a letter; `over_at` names the request that finds its run ended."""
        TaskIdentity.run_id = run
        letter = Message(RecordDict({"letter": ConfigRecord({"run": run})}), 1, "query")
        letter.metadata.__dict__["_message_id"] = letter.object_id
        tree = get_object_tree(letter)
        content = {name: part.deflate() for name, part in get_all_nested_objects(letter).items()}

        def ask(name: str, answer: Any) -> Any:
            if name == over_at:
                raise self.main.RunNotRunningException
            return answer

        taken = self.main._pull_and_store_message(
            state=self.state,
            object_store=self.store,
            node_config={},
            receive=lambda: (letter, tree),
            get_run=Run.create_empty,
            get_fab=None,
            pull_object=lambda run, name: ask("pull", content[name]),
            confirm_message_received=lambda run, name: ask("confirm", None),
            trusted_entities=None,
        )
        assert taken == (None if over_at else run)
        return letter

    def answer(self, letter: Message) -> None:
        self.main._insert_message(Message(RecordDict(), reply_to=letter), self.state, self.store)

    def push(self) -> None:
        def send(answer: Message, *_: Any) -> tuple[set[str], str]:
            self.sent.append(answer.metadata.reply_to_message_id)
            return set(), ""

        self.main._push_messages(state=self.state, object_store=self.store, send=send, push_object=None)

    @property
    def tasks(self) -> list[str]:
        return [task.status.status for task in self.state.get_tasks()]


def test_an_answer_of_a_run_that_is_over(main: ModuleType) -> None:
    node = Node(main)
    node.answer(node.take(OLD, over_at="confirm"))
    letter = node.take(NEW)

    def later() -> None:
        time.sleep(0.2)
        node.answer(letter)

    late = threading.Thread(target=later)
    late.start()
    node.push()
    late.join()
    ours = main._push_messages.__name__ == "push_until_answered"
    assert (letter.metadata.message_id in node.sent) == ours  # Flower's own sends it after the next letter


def test_a_letter_that_was_not_fetched_whole(main: ModuleType) -> None:
    node = Node(main)
    node.take(OLD, over_at="pull")
    ours = main._push_messages.__name__ == "push_until_answered"
    # At Flower's own a process waits for the rest of it.
    assert (node.tasks, len(node.state.msg_store)) == ((["finished"], 0) if ours else (["pending"], 1))


def test_two_letters_in_step(main: ModuleType) -> None:
    node = Node(main)
    for run in (OLD, NEW):
        letter = node.take(run)
        node.answer(letter)
        node.push()
        assert node.sent[-1] == letter.metadata.message_id
    assert len(node.sent) == 2

"""A run ends while a node takes a letter of it: the answers to later letters are not late. A process that answers ends
before it does: an error goes out in the answer's place.
"""

import threading
import time
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.supercore import date
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import in_memory_nodestate
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from privadmm.deploy.flower.stale_letters import end_unanswered, keep_in_step

OLD, NEW = 7, 8  # runs


@pytest.fixture(params=["Flower's own", "in step"])
def main(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The node's main loop, as Flower has it and as privadmm's node has it."""
    for name in ("_pull_and_store_message", "_push_messages", "pull_objects"):
        monkeypatch.setattr(start_client_internal, name, getattr(start_client_internal, name))  # as it was, at the end
    for name, number in (("_task_id", 5), ("_run_id", OLD), ("_node_id", 1)):  # of whoever sends a letter
        monkeypatch.setattr(TaskIdentity, name, number)
    for name in ("finish_task", "_on_task_tokens_expired"):
        monkeypatch.setattr(InMemoryNodeState, name, getattr(InMemoryNodeState, name))
    if request.param == "in step":
        keep_in_step(start_client_internal)
        end_unanswered(in_memory_nodestate)
    return start_client_internal


class Node:
    """A node's state, and its loop's two steps."""

    def __init__(self, main: Any) -> None:
        self.main, self.store = main, InMemoryObjectStore()
        self.state = InMemoryNodeState(self.store)
        self.state.set_node_id(1)
        self.sent: list[str] = []  # ids of the letters that were answered
        self.errors: list[str] = []  # of those, answered with an error
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
            self.errors += [self.sent[-1]] if answer.has_error() else []
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


def test_nobody_reads_a_letter(main: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """Its process was killed after it took the task: Flower's own waits for ever."""
    node = Node(main)
    letter = node.take(NEW)
    task = begun(node)
    node.state.task_token_store[task].active_until = date.now() - timedelta(seconds=1)  # no heartbeat came
    node.state.get_messages_legacy(is_reply=False, run_ids=[OLD])  # looks for such tasks, as every request does
    answered_with_an_error(node, letter)
    assert f"{letter.metadata.message_id} not found" not in caplog.text  # when it was read


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("sub_status", [SubStatus.FAILED, SubStatus.STOPPED, SubStatus.COMPLETED])
def test_a_process_ends_and_leaves_no_answer(main: ModuleType, sub_status: str, read: bool) -> None:
    """It was told to end, could not fetch the letter, or could not hand its answer over."""
    node = Node(main)
    letter = node.take(NEW)
    task = begun(node)
    if read:
        assert node.state.get_messages_legacy(run_ids=[NEW], is_reply=False)
        node.state.record_message_processing_start(letter.metadata.message_id)
    assert node.state.finish_task(task, sub_status, "")
    answered_with_an_error(node, letter)


def test_an_answer_stands_whatever_becomes_of_its_process(main: ModuleType) -> None:
    node = Node(main)
    for sent_before in (False, True):
        letter = node.take(NEW)
        task = begun(node)
        node.answer(letter)
        if sent_before:
            node.push()
        assert node.state.finish_task(task, SubStatus.FAILED, "")
        if not sent_before:
            node.push()
    assert (len(node.sent), node.errors, len(node.state.msg_store)) == (2, [], 0)


def test_a_letter_that_another_process_will_read_is_left_to_it(main: ModuleType) -> None:
    node = Node(main)
    node.answer(node.take(NEW))
    slow = begun(node)
    node.push()
    letter = node.take(NEW)  # its task waits for a process
    assert node.state.finish_task(slow, SubStatus.FAILED, "")
    assert [entry.is_retrieved for entry in node.state.msg_store.values()] == [False]
    begun(node)
    (read,) = node.state.get_messages_legacy(run_ids=[NEW], is_reply=False)
    assert read.metadata.message_id == letter.metadata.message_id


def begun(node: Node) -> int:
    """The task of the last letter, which a process has taken."""
    (task,) = [one.task_id for one in node.state.get_tasks() if one.status.status == "pending"]
    assert node.state.claim_task(task)
    assert node.state.activate_task(task)
    return int(task)


def answered_with_an_error(node: Node, letter: Message) -> None:
    waiting = [entry for entry in node.state.msg_store.values() if entry.message.metadata.reply_to_message_id]
    if node.main._push_messages.__name__ != "push_until_answered":
        assert waiting == []  # Flower's own would wait
        return
    node.push()
    assert node.sent == node.errors == [letter.metadata.message_id]
    assert not node.state.msg_store
    again = node.take(NEW)
    node.answer(again)
    node.push()
    assert (node.sent[-1], len(node.errors)) == (again.metadata.message_id, 1)

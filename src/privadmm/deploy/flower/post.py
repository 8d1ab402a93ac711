"""Sends letters as Flower messages by push and pull: `send_and_receive` sleeps for three seconds between looks."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from privadmm.deploy.federation.protocol import LETTER, Letter

logger = logging.getLogger(__name__)
POLL = 0.2  # seconds between looks for answers
AGAIN = 30.0  # seconds without any answer after which a letter is sent again, in case its node lost it
SHARE = 2.0  # further seconds for each letter under way: in a rehearsal all nodes share a few cores
PAUSE = 3.0  # seconds before a letter is sent again that Flower did not take or could not deliver
Watch = Callable[[Collection[int], Collection[int]], None]


class FlowerPost:
    """Carries letters over a Grid. Answers are taken once, from whichever attempt comes first."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.longest = 0.0  # most seconds that an answer took
        self.repeats = 0  # letters that were sent again
        self.owners: dict[int, bytes] = {}  # the public key of each node that was there
        self.watch: Watch = lambda waiting, asked: None  # called at every look: who has not answered, who was asked

    def nodes(self) -> Sequence[int]:
        present = {node.node_id: bytes(node.public_key) for node in self.grid.get_nodes()}
        self.owners |= present
        return sorted(present)

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        began = time.monotonic()
        answers: dict[int, Letter] = {}
        sent: dict[str, int] = {}  # message id -> node
        due = dict.fromkeys(letters, began)
        tries = dict.fromkeys(letters, 0)
        patience = max(AGAIN + SHARE * len(letters), 3 * self.longest)
        while len(answers) < len(letters) and (now := time.monotonic()) < began + seconds:
            self.watch([node for node in letters if node not in answers], letters)
            if ready := [node for node, at in due.items() if node not in answers and at <= now]:
                pushed = self._push({node: letters[node] for node in ready}, began + seconds - now)
                sent |= pushed
                self.repeats += sum(tries[node] > 0 for node in pushed.values())
                for node in ready:
                    if node in pushed.values():
                        due[node], tries[node] = now + patience * 2 ** tries[node], tries[node] + 1
                    else:
                        due[node] = now + PAUSE
            for reply in self.grid.pull_messages(list(sent)) if sent else ():
                node = sent.pop(reply.metadata.reply_to_message_id, -1)
                if node < 0 or node in answers:
                    continue
                if reply.has_error() or reply.metadata.src_node_id != node:
                    other = f"node {reply.metadata.src_node_id} answered its letter"
                    logger.info("node %d: %s", node, reply.error.reason if reply.has_error() else other)
                    due[node] = min(due[node], time.monotonic() + PAUSE)
                    continue
                # A message without a letter counts as an empty answer: the caller complains and names the node.
                letter = reply.content.get(LETTER)
                answers[node] = dict(letter) if isinstance(letter, ConfigRecord) else {}
                heard = time.monotonic()
                self.longest = max(self.longest, heard - began)
                # As long as answers come, the other nodes are probably at work.
                due |= {other: max(due[other], heard + AGAIN) for other in sent.values()}
            if len(answers) < len(letters):
                time.sleep(POLL)
        self.watch([node for node in letters if node not in answers], letters)
        return answers

    def _push(self, letters: Mapping[int, Letter], seconds: float) -> dict[str, int]:
        """Send letters; returns node by message id for those that Flower took. On a slow machine it may take none."""
        messages = [
            Message(RecordDict({LETTER: ConfigRecord(dict(letter))}), node, "query", ttl=max(seconds, 1.0))
            for node, letter in letters.items()
        ]
        try:
            ids = self.grid.push_messages(messages)
        except ObjectPushError as error:
            logger.info("letters were not taken, and are sent again: %s", error)
            return {}
        return {id: node for id, node in zip(ids, letters, strict=True) if id}

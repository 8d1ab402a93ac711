"""The ClientApp: one process per message, which answers from the party's directory.

The node names that directory, with `--node-config 'party="DIRECTORY"'`; messages and runs' configs cannot.
"""

import os
import signal

# More BLAS threads than one change bits. This limits also the pool that scipy brings, which is not loaded yet.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.hub.supervisor import stop_signals
from privadmm.deploy.federation.protocol import LETTER
from privadmm.engine.loop import one_blas_thread

STRAY = {
    "status": "failed",
    "error": "ConfigError",
    "message": "its node was started without --node-config party, or the message is no letter",
}


def query(message: Message, context: Context) -> Message:
    """Answer one letter."""
    folder, letter = context.node_config.get("party"), message.content.get(LETTER)
    reply: dict[str, str | int | bytes] = dict(STRAY)
    if isinstance(folder, str) and isinstance(letter, ConfigRecord):
        # A step that a signal breaks off after it has read records is charged and locks the ledger: let it end first.
        with stop_signals() as signals, one_blas_thread():
            reply = answer(Path(folder), {str(key): value for key, value in letter.items()})
        for number in signals[:1]:
            signal.raise_signal(number)
    return Message(RecordDict({LETTER: ConfigRecord(reply)}), reply_to=message)


app = ClientApp()
app.query()(query)

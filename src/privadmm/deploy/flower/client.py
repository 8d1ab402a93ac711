"""The ClientApp: one process per message, everything rebuilt from the party's directory, which its node names.

Nothing of the message or of the run's config says where files are: `--node-config 'party="DIRECTORY"'` does.
"""

import os

# numpy and scipy bring a BLAS pool each, and more threads than one change bits; scipy is not loaded yet.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from privadmm.deploy.federation.party_server import answer
from privadmm.deploy.federation.protocol import LETTER
from privadmm.engine.loop import one_blas_thread

STRAY = {
    "status": "failed",
    "error": "ConfigError",
    "message": "its node was started without --node-config party, or the message is no letter",
}


def query(message: Message, context: Context) -> Message:
    folder, asked = context.node_config.get("party"), message.content.get(LETTER)
    said: dict[str, str | int | bytes] = dict(STRAY)
    if isinstance(folder, str) and isinstance(asked, ConfigRecord):
        with one_blas_thread():
            said = answer(Path(folder), {str(key): value for key, value in asked.items()})
    return Message(RecordDict({LETTER: ConfigRecord(said)}), reply_to=message)


app = ClientApp()
app.query()(query)

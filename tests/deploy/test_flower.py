"""The Flower engine on real processes: one short deployment, with TLS and node authentication."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privadmm.privacy.verification import verify
from privadmm.runs.rundir import receipts_of
from small_runs import ENVIRONMENT, PRIVATE, Place, charged, no_plots, with_changes

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import only_releases
from flower_deployment import deployed

SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": 2}})


def test_a_short_deployment_has_the_transcript_of_one_process(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    no_plots(monkeypatch)
    whole = place.run(SHORT, out=place.path / "whole")
    with deployed(place.path, SHORT) as made:
        made.run()
        result = made.finish()
        assert result["transcript"] == whole.result["transcript"]
        assert result["accuracy_test"] is None
        for number, ledger in enumerate(made.federated.ledgers):
            found = made.captured(number)
            assert [letter["kind"] for letter, _ in found] == ["hello", "begin", "step", "step"]
            only_releases(ledger, [said for _, said in found])
            assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()
            assert charged(ledger) == 2
        # The app bundle of the run was not unpacked anywhere.
        places = [made.place.folder, *made.federated.folders]
        assert not any((folder / "flower" / "apps").exists() for folder in places)


def test_the_client_app_starts_without_heavy_libraries(tmp_path: Path) -> None:
    code = (
        "import privadmm.deploy.flower.client, flwr.supernode.runtime.run_clientapp, sys, json\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    environment = {**ENVIRONMENT, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=tmp_path,
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"numpy", "flwr"} <= loaded
    heavy = {"sklearn", "matplotlib", "dp_accounting", "networkx", "opendp", "scipy", "sqlalchemy", "pyarrow"}
    assert not loaded & heavy


@pytest.mark.parametrize("own", ["flwr-clientapp", "flwr-serverapp"])
def test_other_apps_are_refused(own: str, tmp_path: Path) -> None:
    from privadmm.deploy.federation.layout import COMMANDS, pinned

    pinned(tmp_path, own)
    for name in set(COMMANDS) - {own}:
        done = subprocess.run(
            [str(tmp_path / "bin" / name), "--token", "x"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "runs privadmm's own app and nothing else" in done.stderr


def test_every_command_that_flower_may_start_is_replaced() -> None:
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    from privadmm.deploy.federation.layout import COMMANDS

    assert set(COMMANDS) == set(TASK_TYPE_TO_COMMAND.values())


def test_another_flower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import flwr

    from privadmm.deploy.flower import pinned

    monkeypatch.setattr(flwr, "__version__", "1.42.0")
    for act in (pinned.client, pinned.server):
        with pytest.raises(SystemExit, match="privadmm pins Flower"):
            act()
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="unpacks bundles in another way"):
        pinned.replaced(flwr, no_such_function=pinned.nothing)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_letters_that_flower_does_not_take_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine Flower's time limit for the parts of a message runs out."""
    from types import SimpleNamespace

    from flwr.app import ConfigRecord, RecordDict
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
    from flwr.supercore.task_identity import TaskIdentity

    from privadmm.deploy.flower import post

    class Grid:
        pushed = 0

        def push_messages(self, messages: list[object]) -> list[str | None]:
            self.pushed += 1
            if self.pushed == 1:
                raise ObjectPushError("object", 1, "session")
            return ["first", None] if self.pushed == 2 else ["second"]

        def pull_messages(self, ids: list[str]) -> list[object]:
            content = RecordDict({post.LETTER: ConfigRecord({"status": "ok"})})
            return [
                SimpleNamespace(
                    metadata=SimpleNamespace(reply_to_message_id=id, src_node_id={"first": 7, "second": 8}[id]),
                    content=content,
                    has_error=lambda: False,
                )
                for id in ids
            ]

    for name in ("_task_id", "_run_id", "_node_id"):  # a message knows who sends it
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(post, "PAUSE", 0.01)
    monkeypatch.setattr(post, "POLL", 0.01)
    grid = Grid()
    found = post.FlowerPost(grid).exchange({7: {"kind": "step"}, 8: {"kind": "step"}}, 10.0)  # type: ignore[arg-type]
    assert (found, grid.pushed) == ({7: {"status": "ok"}, 8: {"status": "ok"}}, 3)


def test_replies_without_a_letter_and_from_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender names the party whose answer is missing, and no party can answer for another."""
    from types import SimpleNamespace

    from flwr.app import ConfigRecord, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from privadmm.deploy.flower import post

    contents = {
        7: RecordDict({}),
        8: RecordDict({post.LETTER: MetricRecord({"status": 1})}),
        9: RecordDict({post.LETTER: ConfigRecord({"status": "ok"})}),
    }

    class Grid:
        pushed = 0

        def push_messages(self, messages: list[Any]) -> list[str]:
            self.pushed += 1
            return [f"{self.pushed} {message.metadata.dst_node_id}" for message in messages]

        def pull_messages(self, ids: list[str]) -> list[object]:
            found = []
            for id in ids:
                attempt, node = map(int, id.split())
                sender = 7 if node == 9 and attempt == 1 else node
                metadata = SimpleNamespace(reply_to_message_id=id, src_node_id=sender)
                found.append(SimpleNamespace(metadata=metadata, content=contents[node], has_error=lambda: False))
            return found

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(post, "PAUSE", 0.01)
    monkeypatch.setattr(post, "POLL", 0.01)
    grid = Grid()
    found = post.FlowerPost(grid).exchange({node: {"kind": "step"} for node in contents}, 10.0)  # type: ignore[arg-type]
    assert (found, grid.pushed) == ({7: {}, 8: {}, 9: {"status": "ok"}}, 2)

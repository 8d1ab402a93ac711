"""What befalls an operator of a federation, with real processes: a backup that is put back, a policy that changes, a
party that leaves, versions, certificates, disks and clocks that are wrong.

After each the ledgers hold what the run received and no more, nothing is set aside for a run that is over, the status
and the exit code are true, and the federation goes on when the cause is mended.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from small_runs import ENVIRONMENT, PRIVATE, with_changes

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
import privadmm
from flower_deployment import PATIENCE, Deployed, deployed, in_order, in_process, job_of, paid
from privadmm.cli.views.steward import overview
from privadmm.privacy.verification import verify

pytestmark = pytest.mark.slow
ROUNDS = 3
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}, "privacy": {"budget": 100.0}})
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return in_process(tmp_path_factory.mktemp("whole") / "star", STAR)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("operations"), STAR) as found:
        yield found


def called(*words: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command."""
    line = [sys.executable, "-m", "privadmm", *map(str, words), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return done.returncode, found


def ran(made: Deployed, out: str, *words: str, timeout: float = PATIENCE) -> tuple[int, dict[str, Any]]:
    """A whole run by its command: exit code, and its last status."""
    made.place.status.unlink(missing_ok=True)
    code, said = made.said("run", "--out", f"runs/{out}", "--timeout", str(timeout), *words)
    told, status = made.said("status")
    assert (told, status["state"]) == (code, said["state"]), (said, status)
    return code, said


def began(made: Deployed, out: str, *words: str) -> Any:
    """Start a run and wait for its first round."""
    made.place.status.unlink(missing_ok=True)
    process = made.command("run", "--out", f"runs/{out}", "--json", *words)

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(made.status().get("round"))

    made.wait_for(there, "a round")
    return process


def ended(process: Any) -> tuple[int, dict[str, Any]]:
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    return process.returncode, json.loads(out)


def good(made: Deployed, said: tuple[int, dict[str, Any]], whole: str, counts: list[int] | None = None) -> None:
    """The run finished with the transcript of one process, and its ledgers hold that and no more."""
    code, status = said
    assert (code, status["state"]) == (0, "finished"), status
    assert status["transcript"] == whole
    result = json.loads((Path(status["out"]) / "result.json").read_text())
    in_order(made, result, counts or [ROUNDS] * 3)
    nothing_aside(made)


def shown(ledger: Path) -> dict[str, Any]:
    """What `ledger show` tells; the command itself takes seconds to start, and is tried elsewhere."""
    return overview(ledger)


def aside(ledger: Path) -> float:
    """How much more epsilon is spent or set aside than spent."""
    (one,) = shown(ledger)["parties"]
    return float(one["epsilon_with_reservations"]) - float(one["epsilon_spent"])


def nothing_aside(made: Deployed) -> None:
    assert [aside(ledger) for ledger in made.federated.ledgers] == [0.0] * len(made.federated.ledgers)


def beside(ledger: Path) -> list[Path]:
    """The ledger and the files beside it."""
    return sorted(ledger.parent.glob(f"{ledger.name}*"))


def put(files: list[Path], folder: Path) -> None:
    for file in files:
        shutil.copy2(file, folder / file.name)


@pytest.mark.parametrize("what", ["the ledger", "the ledger and its anchor"])
def test_a_backup_that_is_put_back_is_refused(what: str, made: Deployed, whole: str, tmp_path: Path) -> None:
    """By the party itself, or where its anchor was put back as well, by the receipts that it signed."""
    name, ledger = what.replace(" ", "-"), made.federated.ledgers[1]
    good(made, ran(made, f"{name}-before"), whole)
    old = beside(ledger) if "anchor" in what else [ledger]
    put(old, tmp_path)
    good(made, ran(made, f"{name}-after"), whole)
    spent = shown(ledger)["parties"][0]["epsilon_spent"]
    kept = tmp_path / "kept"
    kept.mkdir()
    put(beside(ledger), kept)
    put([tmp_path / file.name for file in old], ledger.parent)
    code, said = ran(made, f"{name}-again")
    assert (code, said["state"], said["error"]) == (3, "failed", "LockedError"), said
    assert "party 1" in said["message"]
    job = made.place.folder / "runs" / f"{name}-again"
    assert not job.exists()  # nothing was released
    assert [aside(one) for number, one in enumerate(made.federated.ledgers) if number != 1] == [0.0, 0.0]
    assert shown(ledger)["locked"] is not None or shown(ledger)["behind"] is not None
    if "anchor" not in what:
        # The steward goes on with the copy: what was released since is charged.
        code, told = called("ledger", "restore", ledger, ledger, "--because", "the disk was put back")
        assert code == 0, told
        assert shown(ledger)["parties"][0]["epsilon_spent"] >= spent - 1e-9
    else:
        for file in beside(ledger):
            file.unlink()
        put(sorted(kept.iterdir()), ledger.parent)
    assert verify(ledger).problems == ()
    good(made, ran(made, f"{name}-mended"), whole)


def test_an_amended_policy_is_accepted_by_the_running_federation(made: Deployed, whole: str) -> None:
    """Stricter, and the job is refused by it; larger again, and it runs: history and spending stay."""
    folder, ledger = made.federated.folders[1], made.federated.ledgers[1]
    before = shown(ledger)["parties"][0]

    def amended(old: str, new: str) -> None:
        made.federated.change(1, old, new)
        code, said = called("federation", "ledger", folder, "--amend", "--because", "the board decided")
        assert code == 0, said

    made.federated.change(1, "[policy]\n", "[policy]\nper_job = 0.5\n")
    code, said = ran(made, "not-amended")  # party.toml alone decides nothing
    assert (code, said["state"]) == (1, "failed"), said
    nothing_aside(made)
    amended("per_job = 0.5\n", "per_job = 0.25\n")
    code, said = ran(made, "stricter")
    assert (code, said["state"], said["error"]) == (3, "failed", "RefusedError"), said
    nothing_aside(made)
    amended("per_job = 0.25\n", "")
    assert shown(ledger)["parties"][0] == before
    good(made, ran(made, "amended"), whole)
    assert shown(ledger)["parties"][0]["releases"] == before["releases"] + ROUNDS
    assert verify(ledger).problems == ()


def test_a_run_that_is_stopped_for_good_leaves_nothing_set_aside(made: Deployed, whole: str) -> None:
    """A party that is away hears of it when the next run begins."""
    process = began(made, "stopped")
    job = job_of(made.place.folder / "runs" / "stopped")
    made.kill("node-2")
    code, said = made.said("stop", "--for-good")
    assert (code, said["state"]) == (0, "stopped"), said
    assert ended(process)[0] == 1
    assert [aside(ledger) > 0 for ledger in made.federated.ledgers] == [False, False, True]
    for ledger in made.federated.ledgers[:2]:
        (mine,) = [one for one in shown(ledger)["jobs"] if one["job"] == job]
        assert (mine["state"], mine["key"]) == ("closed", False)
    made.node(2)
    code, said = made.said("run", "--out", "runs/stopped", "--resume")
    assert code in (1, 2), said  # it is over for good
    good(made, ran(made, "next"), whole)


def test_a_party_that_is_gone_for_good_after_a_checkpoint(made: Deployed, whole: str) -> None:
    """The run was to end without it; resumed with absent = continue, the others' epsilon is not lost."""
    process = began(made, "gone", "--timeout", "30", "--absent", "abort")
    made.kill("node-2")
    # Whoever looks sees at once whom it waits for, and not after the timeout.
    made.wait_for(lambda: made.status().get("waiting_for") == ["party 2"], "the party that is waited for")
    assert made.status()["state"] == "running"
    code, said = ended(process)
    assert (code, said["state"]) == (1, "failed"), said
    assert "party 2" in said["message"]
    code, said = ran(made, "gone", "--resume", "--absent", "continue", timeout=30.0)
    assert (code, said["state"]) == (0, "finished"), said
    out = Path(said["out"])
    result, job = json.loads((out / "result.json").read_text()), job_of(out)
    (gone,) = result["absent"]
    assert gone["party"] == 2
    assert [paid(ledger, job) for ledger in made.federated.ledgers[:2]] == [ROUNDS] * 2
    assert paid(made.federated.ledgers[2], job) - (gone["from_round"] - 1) in (0, 1)
    made.node(2)
    good(made, ran(made, "all-again"), whole)


def test_two_versions_in_one_run_are_refused(made: Deployed, whole: str) -> None:
    made.kill("node-1")
    made.node(1, PLANTED_VERSION="0.0.7")
    code, said = ran(made, "versions")
    assert (code != 0, said["state"]) == (True, "failed"), said
    assert "0.0.7" in said["message"]
    assert privadmm.__version__ in said["message"]
    nothing_aside(made)
    made.kill("node-1")
    made.node(1)
    good(made, ran(made, "one-version"), whole)


def reissued(folder: Path, *, name: str | None = None, days: tuple[float, float] = (-1, 30)) -> None:
    """The coordinator's certificate anew, for another name or another time."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    old = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    authority: Any = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        old.issuer,
        old.subject,
        old.public_key(),
        x509.random_serial_number(),
        now + timedelta(days=days[0]),
        now + timedelta(days=days[1]),
    )
    for one in old.extensions:
        value: Any = one.value
        if name is not None and isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = builder.add_extension(value, one.critical)
    made = builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "server.pem").write_bytes(made)


def findings(checked: dict[str, Any]) -> list[dict[str, Any]]:
    """All that `federation check` found."""
    return [one for found in checked["checked"].values() for one in found]


CERTIFICATES: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"days": (-30, -1)}, "is valid from"),
    "for another name": ({"name": "elsewhere.example"}, "elsewhere.example"),
}


@pytest.mark.parametrize("fault", CERTIFICATES)
def test_a_certificate_that_is_no_good(fault: str, made: Deployed, whole: str) -> None:
    """`check` names it with the fix, at the coordinator and at a party; no run begins, and a new one mends all."""
    options, word = CERTIFICATES[fault]
    made.kill("superlink")
    reissued(made.place.certificates, **options)
    own = [sys.executable, "-m", "privadmm", "federation", "superlink", str(made.place.folder)]
    made.start("superlink", own, made.environment)
    try:
        code, said = called("federation", "check", made.place.folder)
        assert code == 1
        bad = [one for one in findings(said) if one["state"] == "bad"]
        assert any(word in json.dumps(one) for one in bad), said
        assert any("federation rotate" in json.dumps(one) for one in bad), said
        code, said = made.said("run", "--out", f"runs/{fault[:3]}", "--timeout", "20")
        assert code == 1, said
        assert not (made.place.folder / "runs" / fault[:3]).exists()
    finally:
        made.kill("superlink")
        code, told = called("federation", "rotate", made.place.folder)
        made.superlink()
    assert code == 0, told
    nothing_aside(made)
    good(made, ran(made, f"{fault[:3]}-mended"), whole)


@contextmanager
def small_disk(made: Deployed, number: int, size: str) -> Iterator[Path]:
    """A party's directory on a disk of its own, of this size."""
    folder, spare = made.federated.folders[number], made.logs / "spare"
    made.kill(f"node-{number}")
    shutil.copytree(folder, spare, symlinks=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(spare)
        made.node(number)
        pytest.skip("no file system can be mounted here")
    try:
        shutil.copytree(spare, folder, symlinks=True, dirs_exist_ok=True)
        made.node(number)
        yield folder
    finally:
        made.kill(f"node-{number}")
        shutil.rmtree(spare)
        shutil.copytree(folder, spare, symlinks=True)
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder)
        spare.rename(folder)
        made.node(number)


def test_a_full_disk_at_a_party(made: Deployed, whole: str) -> None:
    """The run ends and says whose, nothing is lost, and it is resumed once there is room."""
    with small_disk(made, 1, "64m") as folder:
        process = began(made, "full", "--timeout", "60")
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"0" * 4096)
            except OSError:
                pass
        code, said = ended(process)
        assert (code, said["state"]) == (1, "failed"), said
        assert "party 1" in said["message"]
        assert "disk" in said["message"]
        assert made.said("status")[1]["state"] == "failed"
        filler.unlink()
        good(made, ran(made, "full", "--resume"), whole)


@pytest.mark.parametrize("off", ["+1h", "-1h"])
def test_a_clock_that_is_an_hour_off(off: str, made: Deployed, whole: str) -> None:
    """The party's `check` says so. Whatever Flower makes of it, nothing is spent that the run did not receive."""
    if not FAKETIME.exists():
        pytest.skip("libfaketime is not installed: apt-get install faketime")
    wrong = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": off, "DONT_FAKE_MONOTONIC": "1"}
    folder = made.federated.folders[1]
    line = [sys.executable, "-m", "privadmm", "federation", "check", str(folder), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env={**ENVIRONMENT, **wrong}, check=False)
    assert done.returncode == 1, done.stdout
    bad = [one for one in findings(json.loads(done.stdout)) if one["state"] == "bad"]
    assert any("clock" in one["said"] for one in bad), bad
    made.kill("node-1")
    made.node(1, **wrong)
    try:
        code, said = ran(made, f"clock{off}", timeout=60.0)
        if code == 0:
            good(made, (code, said), whole)
        else:
            assert (code, said["state"]) == (1, "failed"), said
            assert "party 1" in said["message"]
    finally:
        made.kill("node-1")
        made.node(1)
    nothing_aside(made)
    good(made, ran(made, f"right-{off}"), whole)

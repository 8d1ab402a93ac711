"""`privadmm federation init` and `check`: a federation's files, and faults that are found without running it."""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from privadmm.config.file import read
from privadmm.config.sections import PrivacyTable
from small_runs import PRIVATE, SECURE, Outcome, Place, alive, wait_for, with_changes

pytest.importorskip("cryptography")
from privadmm.deploy.federation import keys
from privadmm.deploy.federation.hub.supervisor import keep_up, need_port
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.party import PolicyTable
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral, written
from privadmm.deploy.federation.setup import doctor
from privadmm.deploy.federation.setup.deployed import deployed, differences
from privadmm.deploy.federation.setup.invitation import read_invitation
from privadmm.errors import ConfigError
from privadmm.params import fields_of

PORT = 9177
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that Flower is installed; these checks do not use it."""
    monkeypatch.setattr(doctor, "flower", lambda: "1.41.0")


@pytest.fixture
def made(place: Place) -> Path:
    done = init(place, "--rehearse")
    assert done.code == 0, done.err
    return place.path / "fed"


def init(place: Place, *words: str, out: str = "fed", **changes: Any) -> Outcome:
    config = place.config(**changes)
    return place.call("federation", "init", config, "--out", place.path / out, "--port", PORT, *words)


def check(place: Place, folder: Path, *words: object) -> Outcome:
    return place.call("federation", "check", folder, *words)


def bad(place: Place, folder: Path, *words: object) -> dict[str, str]:
    """Problems by the name of their check."""
    done = check(place, folder, "--json", *words)
    found = {
        one["what"]: one["said"]
        for findings in done.object["checked"].values()
        for one in findings
        if one["state"] == "bad"
    }
    assert done.object["good"] == (not found)
    assert done.code == bool(found)
    return found


def test_what_init_makes_is_good(place: Place, made: Path) -> None:
    done = check(place, made)
    assert (done.code, "BAD" in done.out) == (0, False)
    assert done.out.count("ok   ledger: epsilon = 0 of 1 is spent or set aside") == 3
    assert "16 records, 3 columns, as party.toml and the job declare" in done.out
    for folder in made.glob("party-*"):
        assert read_party(folder).node.superlink == f"127.0.0.1:{PORT}"
        assert (folder / "node-key").stat().st_mode & 0o077 == 0


def test_minimum_parties_and_fewest_are_told_apart() -> None:
    """The first is of every job, the second of secure sums: each names the other."""
    own = fields_of(PolicyTable)
    assert "every job" in own["minimum_parties"].doc
    assert "fewest" in own["minimum_parties"].doc
    assert "minimum_parties" in own["fewest"].doc
    assert "minimum_parties" in fields_of(PrivacyTable)["fewest"].doc


def test_a_party_is_told_what_was_not_read_as_it_stood(place: Place, made: Path) -> None:
    """Its own people are: nothing of it leaves the party."""
    folder, job = made / "party-0", made / "coordinator" / "job.toml"
    (folder / "p.csv").write_text("age,y\n" + "300,1\n?,0\n40,1\n50,0\n" * 4)
    own = 'source = "p.csv"\nlabel = "y"\non_bad = "default"\nschema = { age = [0, 100] }'
    for path in (folder / "party.toml", job):
        path.write_text(path.read_text().replace('source = "data.npz"', own))
    said = " ".join(check(place, folder, "--job", job).out.split())
    assert "age: 4 of 16 cells beyond the declared range, clipped to it" in said
    assert "age: 4 of 16 cells with no number, read as the low end" in said


def test_what_an_epsilon_of_secure_sums_rests_on_is_said_before_anything_runs(place: Place) -> None:
    assert init(place, "--rehearse", **SECURE).code == 0
    said = check(place, place.path / "fed" / "coordinator").out
    assert "epsilon = 1 at delta = 1e-05" in said
    assert "computational" in said
    assert "up to 2 of the 5 parties" in said


def test_init_says_how_to_start(place: Place) -> None:
    said = init(place, "--rehearse", "--json").object
    made = Coordinator(Path(said["coordinator"]["directory"]))
    assert said["coordinator"]["superlink"] == f"privadmm federation superlink {made.folder}"
    words = made.superlink("127.0.0.1")
    assert words[:5] == ["flower-superlink", "--host", "127.0.0.1", "--port", str(PORT)]
    assert {"--ssl-certfile", "--ssl-keyfile", "--enable-supernode-auth"} <= set(words)
    assert len(said["parties"]) == len(said["invitations"]) == 3
    again = init(place)
    assert (again.code, "is not empty; name another directory" in again.err) == (2, True)


def test_init_makes_a_deployment_and_says_what_that_changed(place: Place) -> None:
    """A config that simulates would pass for the real thing; whoever wants a seed has to say so."""
    real = init(place, "--json", out="real", parties={"leave": ["2@2"]})
    job = read(place.path / "real" / "coordinator" / "job.toml")
    assert real.object["mode"] == job.run.mode == "deployment"
    assert job.run.seed is job.parties.leave is None
    changed = {one["key"]: (one["before"], one["after"]) for one in real.object["changed"]}
    assert changed["[run] mode"] == ("simulation", "deployment")
    assert changed["[run] seed"] == (1, None)
    assert changed["[parties] leave"] == (["2@2"], None)
    assert "[data] source" in changed
    assert not {key for key in changed if key.split()[0] in ("[algorithm]", "[loss]", "[privacy]", "[regularizer]")}
    policy = read_invitation(place.path / "real" / "coordinator" / "invitations" / "party-0.toml").policy
    assert policy.mode == "deployment"
    said = init(place, out="told")
    assert (said.code, said.err, "[run] seed: 1 -> left out" in said.out) == (0, "", True)


def test_the_page_on_deploying_shows_the_job_that_init_makes(place: Place) -> None:
    """From the config of the quick start: the recommended method."""
    sample, own = EXAMPLES / "sample.csv", place.path / "schema.toml"
    label, facts = ("--label", "readmitted"), ("--parties", 3, "--records", 3000, "--epsilon", 1)
    assert place.call("schema", sample, *label, "--public", "--out", own).code == 0
    columns = ("--schema", own, "--classes", "no,yes", "--party-column", "hospital")
    config, source = place.path / "quick.toml", ("--source", place.path / "examples" / "patients.csv")
    assert place.call("init", config, *source, *label, *columns, *facts).code == 0
    assert place.call("federation", "init", config, "--out", place.path / "fed").code == 0
    page = (EXAMPLES.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"compares it -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert shown == (place.path / "fed" / "coordinator" / "job.toml").read_text(encoding="utf-8")


def test_the_page_on_deploying_splits_a_table_with_quoted_commas(tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    (shown,) = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "patients.csv" in block]
    (tmp_path / "examples").mkdir()
    rows = ["age,sex,ward,visits,hospital,readmitted", '72,male,"b, left",3,lakeside,yes', "58,female,c,1,south,no"]
    (tmp_path / "examples" / "patients.csv").write_text("\n".join(rows) + "\n")
    subprocess.run(["sh", "-ec", shown], cwd=tmp_path, check=True)
    split = {name: (tmp_path / name / "data.csv").read_text().split("\n") for name in ("lakeside", "north", "south")}
    assert split == {"lakeside": [*rows[:2], ""], "north": [rows[0], ""], "south": [rows[0], rows[2], ""]}


def test_init_keeps_a_seed_only_if_it_is_told_to(place: Place) -> None:
    said = init(place, "--simulation", out="simulated")
    assert (said.code, "is a simulation" in said.err) == (0, True)
    assert init(place, "--simulation", "--json", out="for-machines").object["mode"] == "simulation"
    assert "is a simulation" not in init(place, "--rehearse", out="rehearsed").err
    assert init(place, out="real", run={"mode": "deployment", "seed": None, "ledger": "x"}).code == 0
    seeded = init(place, out="seeded", run={"mode": "deployment", "seed": 0, "ledger": "x"})
    assert (seeded.code, "[run] seed" in seeded.err, (place.path / "seeded").exists()) == (2, True, False)


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_can_become_a_deployment(example: Path, tmp_path: Path) -> None:
    """As a party reads it: whatever a simulation may have and a deployment may not is gone."""
    config = read(example)
    job = neutral(deployed(config))
    (tmp_path / "job.toml").write_text(written(job))
    assert written(neutral(read(tmp_path / "job.toml"))) == written(job)
    keys = [one.key for one in differences(config, job)]
    assert {"[run] mode", "[run] seed", "[data] source"} <= set(keys)
    assert differences(job, job) == []


def test_a_folder_may_be_named_by_way_of_another(place: Place, made: Path) -> None:
    assert bad(place, made / "party-0" / ".." / "coordinator") == {}


def test_help_has_the_commands_in_the_order_of_use(place: Place) -> None:
    said = place.call("federation", "--help").out
    order = ["rehearse", "init", "join", "admit", "check", "superlink", "node", "run", "status", "approve", "withdraw"]
    places = [said.index(f" {name} ") for name in order]
    assert places == sorted(places)


def test_init_is_for_known_parties(place: Place) -> None:
    config = place.config(parties={"count": None, "split": "column:site"})
    done = place.call("federation", "init", config, "--out", place.path / "fed")
    assert (done.code, "known number of parties" in done.err) == (2, True)
    assert not (place.path / "fed").exists()


def test_templates_wait_for_their_party(place: Place) -> None:
    deployment = {"mode": "deployment", "seed": None, "ledger": "x"}
    config = place.config(with_changes(PRIVATE, {"run": deployment}))
    assert place.call("federation", "init", config, "--out", place.path / "fed").code == 0
    folder, invitation = place.path / "party-1", place.path / "fed" / "coordinator" / "invitations" / "party-1.toml"
    assert place.call("federation", "join", invitation, "--out", folder).code == 0
    assert "records: missing" in bad(place, folder)["policy"]
    path = folder / "party.toml"
    path.write_text(path.read_text().replace("# records = ...", "records = 20"))
    found = bad(place, folder)
    assert "put the party's records there" in found["records"]
    assert f"privadmm federation ledger {folder}" in found["ledger"]
    assert place.call("federation", "ledger", folder).code == 0
    assert place.call("federation", "ledger", folder).code == 2
    assert "ledger" not in bad(place, folder)


@pytest.mark.parametrize(
    ("before", "after", "what", "told"),
    [
        ("number = 1", "nummer = 1", "policy", "did you mean number?"),
        ("epsilon = 1.0", "epsilon = 2.0", "ledger", 'and party.toml has {"epsilon": 2.0'),
        ('mode = "simulation"', 'mode = "deployment"', "records", "noise from a seed protects nobody"),
        ("records = 16", "records = 15", "records", "declares records = 15, and data.npz has 16"),
        ('source = "data.npz"', 'source = "data.csv"', "records", "data.csv"),
        ("row_bound = 2.0\nepsilon", "row_bound = 3.0\nepsilon", "records", "clips records to row_bound = 3"),
        ("classes = [0, 1]", "classes = [1, 2]", "records", "are read as it declares"),
        ("number = 1", "number = 5", "records", "this is party 5, and the job has 3"),
        (f'"127.0.0.1:{PORT}"', '"nowhere"', "SuperLink", "is 'nowhere' and not HOST:PORT"),
        ("minimum_parties = 2", "minimum_parties = 0", "policy", "minimum_parties: is 0"),
        ('algorithms = ["dp_admm"]', 'algorithms = ["dp_adm"]', "policy", "names 'dp_adm'"),
    ],
)
def test_faults_of_a_party(place: Place, made: Path, before: str, after: str, what: str, told: str) -> None:
    path = made / "party-1" / "party.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    assert told in bad(place, made / "party-1", "--job", made / "coordinator" / "job.toml")[what]


def test_faults_of_files(place: Place, made: Path) -> None:
    folder, job = made / "party-0", made / "coordinator" / "job.toml"
    (folder / "node-key").chmod(0o644)
    assert "chmod 600" in bad(place, folder)["key"]
    (folder / "node-key").write_text("nonsense")
    assert "is no private key" in bad(place, folder)["key"]
    (folder / "ca.pem").write_text("nonsense")
    assert "is no certificate" in bad(place, folder)["certificate"]
    data = (folder / "ledger.sqlite").read_bytes()
    (folder / "ledger.sqlite").write_bytes(data[:2000])
    assert "ledger" in bad(place, folder)
    (folder / "ledger.sqlite").write_bytes(data)
    config = with_changes(PRIVATE, {"privacy": {"epsilon": 2.0}})
    dear = place.config(config, "dear.toml")
    assert "may spend epsilon = 1 in all" in bad(place, folder, "--job", dear)["ledger"]
    assert "ledger" not in bad(place, folder, "--job", job)


def test_faults_of_a_coordinator(place: Place, made: Path) -> None:
    folder = made / "coordinator"
    keys.make_authority(place.path / "other", "127.0.0.1")
    server = (folder / "certificates" / "server.pem").read_bytes()
    (folder / "certificates" / "server.pem").write_bytes((place.path / "other" / "server.pem").read_bytes())
    assert "was not signed by" in bad(place, folder)["certificate"]
    (folder / "certificates" / "server.pem").write_bytes(server)
    key = (folder / "certificates" / "server-key.pem").read_bytes()
    (folder / "certificates" / "server-key.pem").write_bytes((place.path / "other" / "server-key.pem").read_bytes())
    assert "is not of the key" in bad(place, folder)["certificate"]
    (folder / "certificates" / "server-key.pem").write_bytes(key)
    (folder / "nodes" / "party-2.pub").unlink()
    assert "ask party 2 for its public key" in bad(place, folder)["keys of nodes"]
    (folder / "nodes" / "party-2.pub").write_text("ssh-rsa nonsense")
    assert "is no public key" in bad(place, folder)["keys of nodes"]
    moved = folder.rename(made / "elsewhere")
    assert set(bad(place, moved)) >= {"app", "connection"}
    job = Coordinator(moved).job
    job.write_text(job.read_text().replace("[run]\nseed = 1", "[run]"))
    assert "seed" in bad(place, moved)["job"]


def test_an_expired_certificate(place: Place, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AUTHORITY_DAYS", -1 / 1440)  # a minute ago, five minutes after its beginning
    keys.make_authority(place.path / "old", "127.0.0.1")
    (made / "party-0" / "ca.pem").write_bytes((place.path / "old" / "ca.pem").read_bytes())
    assert "is valid from" in bad(place, made / "party-0")["certificate"]


@contextmanager
def tls_server(folder: Path, port: int) -> Iterator[None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    with socket.create_server(("127.0.0.1", port)) as listening:

        def serve() -> None:
            try:
                with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True):
                    pass
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(timeout=10)


def test_a_superlink_is_known_by_its_certificate(place: Place, made: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    path = made / "party-0" / "party.toml"
    path.write_text(path.read_text().replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{port}"))
    with tls_server(made / "coordinator" / "certificates", port):
        assert bad(place, made / "party-0") == {}
    keys.make_authority(place.path / "other", "127.0.0.1")
    with tls_server(place.path / "other", port):
        assert "does not show a certificate of this authority" in bad(place, made / "party-0")["SuperLink"]


def test_another_flower_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.42.0")
    found = doctor.looked("flower", doctor.flower)
    assert (found.state, "is made for 1.41" in found.said) == ("bad", True)


def test_no_directory_of_a_federation(place: Place) -> None:
    done = check(place, place.path)
    assert (done.code, "is no directory of a party" in done.err) == (2, True)


def test_a_node_is_kept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privadmm.deploy.federation.hub.supervisor.PAUSE", 0.0)
    monkeypatch.setattr("privadmm.deploy.federation.hub.supervisor.TRIES", 3)
    note = tmp_path / "note"
    for code in (0, 7):
        failing = f"open({str(note)!r}, 'a').write('x'); import sys; sys.exit({code})"
        assert keep_up([[sys.executable, "-c", failing]], {}) == (code or 1)
        assert note.read_text() == "xxx"
        note.unlink()


def test_two_are_kept_up_and_ended_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privadmm.deploy.federation.hub.supervisor.PAUSE", 0.0)
    pids, note = tmp_path / "pids", tmp_path / "note"
    staying = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60)"
    failing = (
        f"import os, sys, time\nwhile not os.path.exists({str(pids)!r}): time.sleep(0.05)\n"
        f"open({str(note)!r}, 'a').write('x'); sys.exit(5)"
    )
    monkeypatch.setattr("privadmm.deploy.federation.hub.supervisor.TRIES", 3)
    assert keep_up([[sys.executable, "-c", code] for code in (staying, failing)], {}) == 5
    assert note.read_text() == "xxx"
    (pid,) = pids.read_text().split()
    assert not alive(int(pid))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_kept_up_ends_with_its_keeper(tmp_path: Path, how: signal.Signals) -> None:
    pids = tmp_path / "pids"
    staying = f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import os, sys; from privadmm.deploy.federation.hub.supervisor import keep_up; "
        "sys.exit(keep_up([[sys.executable, '-c', sys.argv[1]]], os.environ))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, staying])
    try:
        wait_for(lambda: pids.exists() and pids.read_text(), "a process")
        process.send_signal(how)
        assert process.wait(timeout=30) == (0 if how == signal.SIGTERM else -how)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not alive(int(pids.read_text())), "its end")


@pytest.mark.parametrize("command", ["node", "superlink"])
def test_a_port_that_is_taken(place: Place, made: Path, command: str) -> None:
    folder, port = (made / "party-0", PORT + 1) if command == "node" else (made / "coordinator", PORT)
    with socket.create_server(("127.0.0.1", port)):
        done = place.call("federation", command, folder)
    assert done.code == 2
    assert f"127.0.0.1:{port} cannot be listened at" in done.err
    assert "runs already, end it first" in done.err


def test_a_deployment_needs_no_ledger_but_the_parties_own(place: Place) -> None:
    done = init(place, "--rehearse", run={"mode": "deployment", "seed": None})
    assert done.code == 0, done.err
    assert "ledger" not in (place.path / "fed" / "coordinator" / "job.toml").read_text()
    assert (place.path / "fed" / "party-0").stat().st_mode & 0o077 == 0


def test_parties_make_their_own_directories_unless_it_is_a_rehearsal(place: Place) -> None:
    said = init(place, "--json").object
    assert (said["parties"], len(said["invitations"])) == ([], 3)
    assert {path.name for path in (place.path / "fed").iterdir()} == {"coordinator"}
    assert len(init(place, "--rehearse", "--json", out="other").object["parties"]) == 3


def test_the_secret_of_the_superlink_is_made_once(made: Path) -> None:
    place = Coordinator(made / "coordinator")
    assert str(place.secret()) in place.superlink("127.0.0.1")
    secret = place.secret().read_bytes()
    assert str(place.secret()) in place.superexec()
    assert (place.secret().read_bytes(), len(secret)) == (secret, 32)
    assert place.secret().stat().st_mode & 0o077 == 0


def test_the_job_is_one_that_train_takes(place: Place, made: Path) -> None:
    """job.toml is a config like any other, except for the records."""
    done = place.call("account", made / "coordinator" / "job.toml", "--json")
    assert done.code == 0
    assert json.loads(done.out)["certified"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(("content", "mode"), [(b"", 0o600), (b"x" * 31, 0o600), (b"x" * 32, 0o644)])
def test_a_secret_that_is_none(made: Path, content: bytes, mode: int) -> None:
    place = Coordinator(made / "coordinator")
    path = place.secret()
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="remove it, and another is made"):
        place.superlink("127.0.0.1")


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:70000", "127.0.0.1:0", ":9100"])
def test_an_address_that_is_none(made: Path, address: str) -> None:
    place = Coordinator(made / "coordinator")
    path = place.flower / "config.toml"
    path.write_text(path.read_text().replace(f"127.0.0.1:{PORT}", address))
    with pytest.raises(ConfigError, match="and not HOST:PORT"):
        _ = place.address


def test_a_port_of_the_other_internet() -> None:
    try:
        taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with taken, pytest.raises(ConfigError, match="cannot be listened at"):
        need_port("::1", taken.getsockname()[1], "it", "it")

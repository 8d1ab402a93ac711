"""`privadmm federation check`: what is wrong with a party's or a coordinator's directory, before anybody is asked."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from privadmm.algorithms.evaluation_noise import accuracy_words, foreseen
from privadmm.config.file import check_seed, read
from privadmm.config.reader import load
from privadmm.config.undeclared import UndeclaredError
from privadmm.deploy.federation.desk.agreement import disagreement
from privadmm.deploy.federation.desk.party_server import Desk
from privadmm.deploy.federation.desk.peers import check_pins
from privadmm.deploy.federation.desk.records import announce, misread
from privadmm.deploy.federation.keys import check_node_key, check_public_key, fingerprint
from privadmm.deploy.federation.layout import NAME, Coordinator
from privadmm.deploy.federation.party import FILE, PEERS, Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import expected, neutral, parties_of
from privadmm.deploy.federation.setup.invitation import read_invitation, read_peers
from privadmm.deploy.federation.setup.joining import INVITED, PROPOSED, REPLY, kept_replies, need_ledger
from privadmm.deploy.federation.setup.symptoms import (
    FaultError,
    Finding,
    Noted,
    answers,
    certificate,
    clock,
    disk,
    flower,
    looked,
    permissions,
    port,
    versions,
)
from privadmm.deploy.federation.signing import public_of
from privadmm.engine.guarantees import less_than_asked
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, LockedError, RefusedError, apart
from privadmm.privacy.accounting import epsilon, printed, totals
from privadmm.privacy.events import alone
from privadmm.privacy.ledger import affordable
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify


def check(folder: Path, job: Path | None = None) -> dict[str, list[Finding]]:
    """Findings by directory: for a party, for a coordinator, or for all directories in a federation's folder."""
    if (folder / FILE).is_file():
        return {str(folder): list(of_party(folder, job))}
    if Coordinator(folder).job.is_file():
        return {str(folder): list(of_coordinator(Coordinator(folder)))}
    job = job or Coordinator(folder / "coordinator").job
    findings: dict[str, list[Finding]] = {}
    for inner in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (inner / FILE).is_file() or Coordinator(inner).job.is_file():
            findings |= check(inner, job if job.is_file() else None)
    if not findings:
        raise ConfigError(f"{folder}: is no directory of a party (party.toml) or of a coordinator (job.toml)")
    return findings


def of_party(folder: Path, job: Path | None) -> Iterator[Finding]:
    try:
        party = read_party(folder)
    except ConfigError as error:
        yield Finding("policy", "bad", str(error), f"correct {folder / FILE}")
        return
    invited = folder / PROPOSED
    job = job or (invited if invited.is_file() else None)
    node, key = party.node, folder / party.node.key
    yield looked("policy", lambda: policy(party))
    yield looked("versions", lambda: versions(invited_by(folder)))
    yield looked("flower", flower, "pip install 'privadmm[flower]'")
    if party.policy.mode == "deployment":
        yield looked("noise", secure, "pip install 'privadmm[deploy]'")
    yield looked("records", lambda: records(party, job), f"correct the file, or [data] in {folder / FILE}")
    shown = f"see `privadmm ledger show {party.ledger}`" if party.ledger.is_file() else "as it says"
    yield looked("ledger", lambda: ledger(party, job), shown)
    pin = f"ask the coordinator for peers.toml: `privadmm federation pin {folder} peers.toml`"
    yield looked("certificate", lambda: certificate(folder / node.ca, pin))
    rotate = f"`privadmm federation rotate {folder}` makes another key"
    yield looked("key", lambda: own_key(folder, key), f"chmod 600 {key}, or {rotate}")
    yield looked("peers", lambda: peers(party, job), f"`privadmm federation pin {folder} peers.toml`")
    told: list[float | None] = []

    def reach() -> str:
        said, ahead = answers(node.superlink, folder / node.ca, f"{folder / FILE}: [node] superlink")
        told.append(ahead)
        return said

    yield looked("SuperLink", reach, f"correct [node] superlink in {folder / FILE}")
    yield looked("clock", lambda: clock(told[0] if told else None))
    yield looked("port", lambda: port("127.0.0.1", node.port, folder, f"[node] port in {folder / FILE}"))
    yield looked("permissions", lambda: permissions(folder, ("node-key", party.party.ledger, "requests.log")))
    yield looked("disk", lambda: disk(folder))


def policy(party: Party) -> str:
    said = f"party {party.number}, {party.policy.mode}, {', '.join(party.policy.algorithms)}"
    if weak := party.fixed.warnings(party.party.records):
        raise Noted("; ".join([said, *weak]))
    return said


def invited_by(folder: Path) -> list[tuple[str, str]]:
    """The coordinator and its version, from the invitation."""
    path = folder / INVITED
    return [("the coordinator", read_invitation(path).facts.privadmm)] if path.is_file() else []


def own_key(folder: Path, key: Path) -> str:
    """Check the party's own key, and that reply.toml has its public half."""
    said, mark = check_node_key(key), fingerprint(public_of(key))
    reply = folder / REPLY
    if reply.is_file() and mark not in [known.fingerprint for known in read_peers([reply], None).replies]:
        raise FaultError(f"{reply} is not of the key {mark}", f"`privadmm federation rotate {folder}` makes both anew")
    return f"{said}; {mark}, which `privadmm federation check` at the coordinator shows too once it is admitted"


def of_coordinator(place: Coordinator) -> Iterator[Finding]:
    own, ca, key = (place.certificates / name for name in ("server.pem", "ca.pem", "server-key.pem"))
    rotate = f"`privadmm federation rotate {place.folder}`, then start the SuperLink again"
    yield looked("job", lambda: proposed(place), f"correct {place.job}")
    yield looked("versions", lambda: versions((reply.name, reply.privadmm) for reply in kept_replies(place)))
    yield looked("flower", flower, "pip install 'privadmm[flower]'")
    yield looked("certificate", lambda: certificate(own, rotate, ca, key, place.reached.host))
    yield looked("its name at home", lambda: certificate(own, rotate, host=place.address[0]))
    yield looked("authority", lambda: certificate(ca, f"`privadmm federation rotate {place.folder} --authority`"))
    admit = f"`privadmm federation admit {place.folder} REPLY.toml`, with its reply"
    yield looked("keys of nodes", lambda: node_keys(place), admit)
    yield looked("app", lambda: app(place), f"correct {place.app / 'pyproject.toml'}")
    yield looked("connection", lambda: connection(place), f"correct {place.flower / 'config.toml'}")
    home = looked("SuperLink", lambda: at_home(place), f"`privadmm federation superlink {place.folder}`")
    yield home
    yield looked("registered", lambda: registered(place, home.state == "good"))
    reached = place.reached
    yield looked("port", lambda: port(reached.listen, reached.port, place.folder, f"port in {place.settings}"))
    secrets = ("superexec-secret", "certificates/server-key.pem", "certificates/ca-key.pem")
    yield looked("permissions", lambda: permissions(place.folder, secrets))
    yield looked("disk", lambda: disk(place.folder))


def at_home(place: Coordinator) -> str:
    """Check that the SuperLink answers at the address that the coordinator's own processes dial."""
    host, number = place.address
    return answers(f"{host}:{number}", place.certificates / "ca.pem", str(place.flower / "config.toml"))[0]


def registered(place: Coordinator, up: bool) -> str:
    """Check that the SuperLink lets in every party whose key is here, and say who is connected now."""
    if not up:
        raise Noted("the SuperLink does not answer, and registers the keys in nodes/ when it starts")
    try:
        from privadmm.deploy.flower.registry import known

        nodes = known(place)
    except ImportError:
        raise Noted("Flower is not installed, and cannot be asked") from None
    if absent := [f"party {number}" for number, node in nodes.items() if node is None]:
        raise FaultError(
            f"the key of {', '.join(absent)} is not registered",
            f"start `privadmm federation superlink {place.folder}` again, which registers it",
        )
    if spent := [f"party {number}" for number, node in nodes.items() if node is not None and node.gone]:
        raise FaultError(
            f"the key of {', '.join(spent)} was taken back, and Flower takes no key a second time",
            "that party makes another with `privadmm federation rotate`, and it is admitted",
        )
    here = [f"party {number}" for number, node in nodes.items() if node is not None and node.status == "online"]
    away = {number: node.seen for number, node in nodes.items() if node is not None and node.status != "online"}
    said = f"connected now: {', '.join(here) or 'nobody'}"
    if away:
        missing = [f"party {number} ({f'not since {at[:19]}' if at else 'never yet'})" for number, at in away.items()]
        raise Noted(
            f"{said}; not connected: {', '.join(missing)}, and no run begins without them",
            "that party starts `privadmm federation node`; `check` of its own directory says whether it gets here",
        )
    return said


def secure() -> str:
    from privadmm.privacy.mechanisms import Deployment

    Deployment()
    return "OpenDP is there"


def records(party: Party, job: Path | None) -> str:
    """Read the party's records as it does when this job is proposed; without a job they are not read."""
    if not party.source.is_file():
        raise ConfigError(f"{party.source}: no such file; put the party's records there")
    if job is None:
        raise Noted(f"{party.source}: is there; with --job JOB.toml it is read as the job would")
    config = neutral(read(job))
    parties = parties_of(config)
    if party.number >= parties:
        raise ConfigError(f"this is party {party.number}, and the job has {parties}, counted from 0")
    Desk(party).admitted(parties, config)
    own = announce(party, config)
    facts = f"{own.records} records, {own.width} columns, as party.toml and the job declare"
    return "; ".join([facts, *misread(party, config)])


def ledger(party: Party, job: Path | None) -> str:
    path, budget = party.ledger, party.fixed.budget
    need_ledger(party)
    if problem := next(iter(verify(path).problems), None):
        raise FaultError(f"{path}: {problem}", f"`privadmm ledger verify {path}`; a backup is put back with `restore`")
    try:
        if (known := identity_of(path)) is not None:  # an old copy may also have another policy
            SqliteLedger(path, known.parties, known.policy, known.mode).close()
    except LockedError as error:
        raise FaultError(
            str(error), f"see `privadmm ledger show {path}`; its steward decides (docs/ledger.md)"
        ) from None
    if differ := disagreement(party):
        raise FaultError(f"{path}: {differ.said}", differ.fix)
    enough = True
    with closing(SqliteLedger(path, (party.number,), party.fixed, party.policy.mode)) as opened:
        if opened.failed is not None:
            raise FaultError(
                f"{path}: is locked, since a step failed",
                f'see `privadmm ledger show {path}`, then `privadmm ledger unlock {path} --because "..."`',
            )
        aside = opened.others(party.number, "")
        if job is not None and party.number < parties_of(config := read(job)):
            cost = totals(expected(config).plan, parties_of(config))[party.number]
            try:
                affordable(opened, "", {party.number: cost})
            except RefusedError:
                if not aside:
                    raise
                enough = False
    if budget is None:
        return "without a budget: nothing here is private"
    spent = printed(epsilon(aside, budget.delta), ".6g")
    said = f"epsilon = {spent} of {budget.epsilon:g} is spent or set aside, at delta = {printed(budget.delta, '.6g')}"
    if (apart := alone(aside)) is not None:
        said += f" ({printed(epsilon(apart, budget.delta), '.6g')} if, in secure sums, everybody else colluded)"
    if not enough:
        raise Noted(f"{said}; this job, unless that was it, will be refused")
    return said


def peers(party: Party, job: Path | None) -> str:
    """Check the pinned keys of the other parties, which a secure sum needs."""
    config = None if job is None else read(job)
    known = sorted(party.folder.glob(f"{PEERS}/party-*.pub"))
    for path in known:
        check_public_key(path)
    if config is not None and config.privacy is not None and config.privacy.sum == "secure":
        check_pins(party.folder, party.number, parties_of(config))
        return f"of all {parties_of(config) - 1} others"
    if not known:
        raise Noted(
            f"{party.folder / PEERS}: has no public key of another party, and a job with secure sums needs all of them"
        )
    return f"of {len(known)} others; with --job JOB.toml of secure sums it is seen whether all are there"


def proposed(place: Coordinator) -> str:
    config = read(place.job)
    check_seed(config)
    parties, job, labels = parties_of(config), expected(config), config.resolve(config.data.source)
    if job.public.columns and not labels.is_file():
        raise ConfigError(f"{labels}: no such file; the coordinator's labels are read there")
    cost = "NOT PRIVATE"
    if job.epsilon is not None:
        cost = f"epsilon = {printed(job.epsilon, '.6g')} at delta = {printed(job.delta or 0.0, '.6g')}"
    said = f"{job.algorithm.name}, {job.public.rounds} rounds, {parties} parties, {cost} for each"
    capped = less_than_asked(job.in_sums.get("secure_sum", {}))
    said = "; ".join(
        [said, *([] if capped is None else [capped]), *evaluation_of(job), *job.caveats_where(pinned=True)]
    )
    weak = [job.weak_promise()]
    with suppress(UndeclaredError):  # until parties say how many records they have
        weak.append(job.weak_delta())
    if any(weak):
        raise Noted("; ".join([said, *filter(None, weak)]))
    return said


def evaluation_of(job: Job) -> list[str]:
    """How well a job's private evaluation will know the accuracy, where it has one."""
    try:
        told = foreseen(job)
    except UndeclaredError:
        return ["how well its private evaluation will know the accuracy is known once parties say how many records"]
    return [] if told is None else [f"its private evaluation will know the {accuracy_words(told)}"]


def node_keys(place: Coordinator) -> str:
    names = {reply.party: reply.name for reply in kept_replies(place)}
    lines = []
    for number in range(parties_of(read(place.job))):
        path = place.key_of(number)
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; ask party {number} for its public key")
        check_public_key(path)
        lines.append(f"{apart(names.get(number, f'party {number}'))} {fingerprint(path.read_bytes())}")
    return ", ".join(lines)


def app(place: Coordinator) -> str:
    path, here = place.app / "pyproject.toml", place.folder.absolute()
    named = load(path)[1].get("tool", {}).get("flwr", {}).get("app", {}).get("config", {}).get("coordinator")
    if not isinstance(named, str) or Path(named).resolve() != here.resolve():
        raise ConfigError(f"{path}: coordinator is {named!r}; set it to {here}")
    return "is for this directory"


def connection(place: Coordinator) -> str:
    path, (host, number) = place.flower / "config.toml", place.address
    ca = Path(str(load(path)[1]["superlink"][NAME].get("root-certificates")))
    if not ca.is_file():
        raise ConfigError(f"{path}: root-certificates: no file {ca}")
    return f"{host}:{number}"

"""The command contract: keys, exit codes, one JSON object and nothing else, and output that people can read."""

import io
import json
import re
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import privadmm
from privadmm.cli.jobs import progress_bar
from privadmm.config import file as configs
from privadmm.runs import demo
from small_runs import (
    CLEAR,
    PARTIES,
    PRIVATE,
    RECORDS,
    Place,
    no_plots,
    result,
    spawn,
    with_changes,
    words_of,
    write_npz,
)

TRAIN = [
    *("algorithm", "private", "rounds", "epsilon", "delta", "mode"),
    *("accuracy_train", "accuracy_test", "objective", "evaluation", "seconds", "out"),
]
RUN_DIRECTORY = {
    *("config.toml", "job.json", "ledger.sqlite", "checkpoint", "metrics.csv", "model.json", "receipts.csv"),
    *("ledger.sqlite-anchor", "ledger.json", "result.json"),
}


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    write_npz(tmp_path / "data.npz")
    monkeypatch.setenv("COLUMNS", "80")
    return Place(tmp_path, capsys)


@pytest.mark.parametrize("tables", [PRIVATE, CLEAR], ids=["private", "clear"])
def test_train_prints_the_contract_and_fills_the_directory(tables: Any, place: Place) -> None:
    config = place.config(tables)
    said = place.train(config, "--json")
    assert said.code == 0
    private = tables is PRIVATE
    assert bool(said.err) is private
    assert not private or re.fullmatch(r"warning: the budget is too small .*\n", said.err)
    assert list(said.object) == TRAIN
    assert said.object["private"] is private
    assert (said.object["epsilon"] is None) == (said.object["delta"] is None) == (not private)
    assert said.object["mode"] == "simulation"
    assert said.object["out"] == str(place.out)
    drawn = {"convergence.svg", "epsilon.svg"} if private else {"convergence.svg"}
    assert {item.name for item in place.out.iterdir()} == RUN_DIRECTORY | drawn
    assert (place.out / "config.toml").read_text() == config.read_text()
    promise = "ε = 1, δ = 10⁻⁵" if private else "NOT PRIVATE"
    for name in drawn:
        assert promise in words_of(place.out / name)[0]
    assert said.object.items() <= result(place.out).items()


def test_what_is_not_private_or_simulated_says_so_everywhere(place: Place) -> None:
    said = place.train(place.config(CLEAR))
    texts = [said.out, *((place.out / name).read_text() for name in ("model.json", "result.json"))]
    for text in texts:
        assert "NOT PRIVATE" in text
        assert "simulation: noise from a seed" in text
    private = place.train(place.config(), out=place.path / "private")
    assert "NOT PRIVATE" not in private.out
    assert "NOT PRIVATE" not in (place.path / "private" / "model.json").read_text()
    assert "simulation: noise from a seed" in private.out


def test_accuracy_and_objective_are_of_the_final_model(place: Place) -> None:
    """Compared with scikit-learn, from the model on disk and all records together."""
    import numpy as np
    from sklearn.metrics import accuracy_score, log_loss

    from privadmm.data.splits import train_test
    from privadmm.runs.model import Model
    from small_runs import rows

    said = place.train(place.config(), "--json").object
    (X, y), model = rows(), Model.load(place.out / "model.json")
    train, test = train_test(len(y), 0.2, 0)
    for name, part in (("accuracy_train", train), ("accuracy_test", test)):
        assert said[name] == pytest.approx(accuracy_score(y[part], model.predict(X[part])), abs=1e-12)
    likely = 1 / (1 + np.exp(-model.scores(X[train])))
    expected = log_loss(y[train], likely) + 1e-3 / 2 * model.weights @ model.weights
    assert said["objective"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("tables", "claim"),
    [(PRIVATE, True), (CLEAR, False)],
    ids=["private", "clear"],
)
def test_account_prints_the_contract_and_reads_no_data(tables: Any, claim: bool, place: Place) -> None:
    (place.path / "data.npz").unlink()
    said = place.call("account", place.config(tables), "--records", RECORDS, "--json")
    assert (said.code, said.err) == (0, "")
    figures = ["algorithm", "private", "rounds", "delta", "certified", "published", "advice", "adversaries"]
    assert list(said.object) == [*figures, *(["expected"] if claim else []), "parties"]
    assert [list(party) for party in said.object["parties"]] == [["party", "records", "epsilon", "events"]] * PARTIES
    assert list(said.object["certified"]) == ["epsilon"]
    assert list(said.object["published"]) == ["epsilon", "caveat"]
    assert (said.object["certified"]["epsilon"] is not None) is claim
    assert (said.object["published"]["epsilon"] is not None) is claim
    assert said.object["published"]["caveat"]
    assert place.names() == {"config.toml"}


def test_account_needs_the_number_of_parties(place: Place) -> None:
    graph = {"kind": "random", "edges": 3}
    algorithm = {"name": "admm_graph", "rounds": 3, "rho": None, "eta": 0.1}
    parties = {"count": None, "split": "column:site"}
    said = place.call("account", place.config(CLEAR, graph=graph, algorithm=algorithm, parties=parties))
    assert (said.code, said.out, "[parties] count" in said.err) == (2, "", True), said.err
    known = place.config(CLEAR, graph=graph, algorithm=algorithm, parties={"split": "column:site"})
    assert place.call("account", known).code == 0


def test_account_foresees_a_refusal(place: Place) -> None:
    said = place.call("account", place.config(privacy={"budget": 0.5}), "--records", RECORDS)
    assert (said.code, "would be refused" in said.out) == (0, True)
    assert "refused" not in place.call("account", place.config(), "--records", RECORDS).out


def test_the_schema_is_printed(place: Place) -> None:
    assert "[algorithm]" in place.call("config", "--schema").out
    schema = place.call("config", "--schema", "--json").object
    assert {"data", "algorithm", "run"} <= schema["properties"].keys()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["train"], "CONFIG.toml"),
        (["account"], "CONFIG.toml"),
        (["train", "a.toml", "b.toml"], "b.toml"),
        (["train", "a.toml", "--sed", "3"], "--seed"),
        (["train", "a.toml", "--seed", "three"], "three"),
        (["frobnicate"], "frobnicate"),
        (["config"], "--schema"),
        (["train", "nothing.toml"], "nothing.toml"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_2_and_one_json_object(words: list[str], names: str, place: Place) -> None:
    plain = place.call(*words)
    assert (plain.code, plain.out) == (2, "")
    assert names in plain.err
    said = place.call(*words, "--json")
    assert said.code == said.object["exit_code"] == 2
    assert names in said.object["message"]


def test_resume_needs_a_place(place: Place) -> None:
    said = place.call("train", place.config(), "--resume")
    assert (said.code, "--out" in said.err) == (2, True)


def test_help_and_version(place: Place) -> None:
    assert place.call("--version").out == f"{privadmm.__version__}\n"
    assert "train" in place.call("--help").out
    assert place.call().code == 2


def test_a_bug_is_a_traceback_for_people_and_no_quotation_for_machines(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("patient 17 is 0")

    monkeypatch.setattr("privadmm.config.build.prepare", broken)
    said = place.train(place.config(), "--json")
    assert (said.code, said.object["error"]) == (1, "ZeroDivisionError")
    assert "patient" not in said.out
    assert "Traceback" in said.err


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), MemoryError()], ids=repr)
def test_what_stops_the_reading_of_data_is_named(
    raised: BaseException, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any) -> None:
        raise raised

    monkeypatch.setattr("privadmm.config.build.prepare", stopped)
    said = place.train(place.config(), "--json")
    assert (said.code, said.object["exit_code"]) == (1, 1)
    assert "Traceback" not in said.err
    assert not place.out.exists()


def quick(path: Path) -> configs.Config:
    found = configs.read(path)
    return replace(found, algorithm=replace(found.algorithm, rounds=2))


def test_demo_shows_three_models_and_every_ledger(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "read", quick)
    said = place.call("demo", "--out", place.out)
    assert said.code == 0, said.err
    secure, figure = place.out / "secure", place.out / "demo.svg"
    for words in ("NOT PRIVATE", "epsilon = 1", "majority", "simulation", "computational", str(secure), str(figure)):
        assert words in said.out
    assert len([words for words in words_of(figure) if "at the end" in words]) == 3
    for model in ("without privacy", "secure sums", "noise of its"):
        assert model in said.out
    assert len(re.findall(r"^│ +\d+ │ +2 │ +1\.000000 │ +1 │$", said.out, re.MULTILINE)) == 10
    check_readable(said.out, place)


def test_demo_prints_one_object(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "read", quick)
    no_plots(monkeypatch)
    said = place.call("demo", "--out", place.out, "--json").object
    assert list(said) == ["reference", "secure", "local"]
    assert [set(found) - {"secure_sum"} for found in said.values()] == [set(TRAIN)] * 3
    assert [found["private"] for found in said.values()] == [False, True, True]
    assert ["secure_sum" in found for found in said.values()] == [False, True, False]


def test_the_demo_compares_like_with_like() -> None:
    """But for the sums, the two private configs are the same."""
    with resources.as_file(resources.files(demo)) as folder:
        secure, local = (configs.read(folder / f"{name}.toml") for name in ("secure", "local"))
    assert secure.privacy is not None
    summed = replace(secure.privacy, sum="local", colluding=None)
    assert replace(secure, privacy=summed).digest == local.digest


@pytest.mark.parametrize("command", ["train", "account"])
def test_output_in_a_pipe_is_plain_and_80_wide(command: str, place: Place) -> None:
    shared = {"ledger": "a ledger [with] an :odd: name.sqlite"}
    config = place.config(run=shared, privacy={"budget": 2.0})
    options = ["--out", place.out] if command == "train" else ["--records", RECORDS]
    process = spawn(command, config, *options)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert not err or (command == "train" and re.fullmatch("warning: the budget is too small .*\n", err))
    check_readable(out, place)
    if command == "train":
        assert str(place.path / shared["ledger"]) in out
        assert re.search(r"parties 0 to 2 +epsilon 1 of 2 spent", out)
        assert re.search(r"majority +train \d", out)


def check_readable(text: str, place: Place) -> None:
    assert "\x1b" not in text
    lines = text.splitlines()
    # A path is left whole, however long it is.
    assert all(len(line) <= 80 for line in lines if str(place.path) not in line)
    assert all("[/]" not in line and "[bold" not in line for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt, RuntimeError])
def test_the_bar_gives_the_terminal_back(
    ends: type[BaseException] | None, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privadmm.config import build

    job = build.job(configs.read(place.config()), sizes=[16] * PARTIES, dim=3)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show, hide = "\x1b[?25h", "\x1b[?25l"
    if ends is None:
        with progress_bar(job, 2):
            assert hide in screen.getvalue()
    else:
        with pytest.raises(ends), progress_bar(job, 2):
            raise ends
    assert screen.getvalue().rfind(show) > screen.getvalue().rfind(hide)


def test_no_bar_without_a_terminal(place: Place) -> None:
    assert place.train(place.config(CLEAR)).err == ""


def test_a_path_that_is_no_text_is_printed_somehow(place: Place) -> None:
    out = place.path / "out-\udcff"
    said = spawn("train", place.config(CLEAR), "--out", out)
    text, err = said.communicate(timeout=60)
    assert (said.returncode, err) == (0, "")
    assert "out-\\udcff" in text


def test_another_run_in_the_same_second_gets_its_own_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path)
    monkeypatch.setattr("privadmm.runs.run.time.strftime", lambda form: "NOW")
    no_plots(monkeypatch)
    config = place.config()
    outs = [place.call("train", config, "--json").object["out"] for _ in range(3)]
    assert outs == ["runs/config-NOW", "runs/config-NOW-2", "runs/config-NOW-3"]


@pytest.mark.usefixtures("skipped_plots")
def test_the_seed_of_the_command_line_is_the_seed(place: Place) -> None:
    config, seedless = (
        place.config(),
        place.config(with_changes(PRIVATE, {"run": {"seed": None}}), "none.toml"),
    )
    found = []
    for number, words in enumerate([[config], [config, "--seed", "2"], [seedless, "--seed", "2"]]):
        out = place.path / str(number)
        assert place.train(*words, out=out).code == 0
        found.append(json.loads((out / "result.json").read_text())["transcript"])
    assert found[0] != found[1] == found[2]

"""The package imports quickly and `account` starts quickly: neither loads heavy libraries."""

import subprocess
import sys
from pathlib import Path

import pytest

import privadmm
from small_runs import ENVIRONMENT, PRIVATE, RECORDS, write_config, write_npz

HEAVY = {
    *("scipy", "sklearn", "matplotlib", "rich", "typer", "networkx"),
    *("dp_accounting", "pandas", "opendp", "pyarrow", "dask", "distributed"),
}


def imported_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running this."""
    report = "import sys; print('\\n' + ' '.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_imports_nothing_heavy() -> None:
    assert not imported_by("import privadmm") & (HEAVY | {"numpy"})


def test_the_probe_sees_what_is_imported() -> None:
    """Control for the other tests."""
    assert "sklearn" in imported_by("from privadmm import ADMMClassifier")


def test_account_for_machines_leaves_the_rest_alone(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.toml", PRIVATE)
    code = (
        "from privadmm.cli import main\n"
        f"try: main(['account', {str(config)!r}, '--records', '{RECORDS}', '--json'])\n"
        "except SystemExit as end: assert not end.code"
    )
    loaded = imported_by(code)
    assert "numpy" in loaded
    assert not loaded & {
        "scipy",
        "sklearn",
        "matplotlib",
        "networkx",
        "dp_accounting",
        "rich",
        "opendp",
        "pyarrow",
    }


def test_training_loads_no_library_to_draw_with(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.toml", PRIVATE)
    write_npz(tmp_path / "data.npz")
    code = (
        "from privadmm.cli import main\n"
        f"try: main(['train', {str(config)!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "except SystemExit as end: assert not end.code"
    )
    assert not imported_by(code) & {"sklearn", "matplotlib", "networkx", "dp_accounting", "opendp", "pyarrow"}
    assert (tmp_path / "out" / "convergence.svg").exists()


def test_what_a_command_puts_off_is_there_when_it_is_used() -> None:
    code = (
        "import sys\n"
        "from privadmm.cli import process\n"
        "process.prepare()\n"
        "import numpy as np, scipy.sparse, scipy.special\n"
        "assert 'numpy.ma.core' not in sys.modules\n"
        "assert np.ma.masked_equal([1, 2], 2).sum() == 1 and np.polynomial.Polynomial([0, 1])(2) == 2\n"
        "assert scipy.special.ndtri(0.5) == 0"
    )
    assert "scipy" in imported_by(code)


@pytest.mark.parametrize("name", privadmm.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(privadmm, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        privadmm.nothing_of_the_sort  # noqa: B018

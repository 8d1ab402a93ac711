"""Examples that come with the package: configs of every method, scripts, and made-up records to try them on."""

from importlib.resources import files
from pathlib import Path

from privadmm.data.files import write_text
from privadmm.errors import ConfigError

KINDS = (".toml", ".py", ".csv")


def folder() -> Path:
    """Find the folder of the examples: inside an installed package, or beside src in a clone."""
    package = Path(str(files("privadmm")))
    for place in (package / "examples", package.parents[1] / "examples"):
        if place.is_dir():
            return place
    raise ConfigError(f"{package}: this installation has no examples; install privadmm from a wheel, or clone it")


def write(out: Path) -> list[str]:
    """Copy all examples into a folder, and return their names. Nothing is overwritten."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder().iterdir()) if path.suffix in KINDS}
    if there := [name for name in texts if (out / name).exists()]:
        raise ConfigError(f"{out / there[0]}: exists already; name another folder, or remove this file")
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)
    return list(texts)

"""The process of a command: what it loads later, or never, and how it ends quickly."""

import atexit
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# scipy takes every name of numpy, these too, which nothing here uses. They take longer to load than scipy.sparse.
LATER = frozenset(("numpy.f2py", "numpy.ma", "numpy.polynomial", "numpy.testing"))
MODULES = 200_000  # more objects that may be garbage than the modules of a command make


class LoadedOnUse:
    """A finder of modules: those of LATER are loaded when somebody uses a name of theirs."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def prepare() -> None:
    """Prepare a process that does one command and ends; call it before numpy is loaded."""
    # Rounds use one thread of BLAS, since more change bits: to start others takes longer than to load numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, LoadedOnUse)
    search_no_modules()
    atexit.register(gc.freeze)  # what is left then goes with the process


def search_no_modules() -> None:
    """Put off the first search for garbage: what modules make is none. From then on they are as frequent as ever."""
    usual = gc.get_threshold()

    def first(phase: str, info: Mapping[str, int]) -> None:
        gc.callbacks.remove(first)
        gc.set_threshold(*usual)

    gc.callbacks.append(first)
    gc.set_threshold(MODULES)

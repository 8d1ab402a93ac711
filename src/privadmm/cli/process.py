"""The process of a command: what it loads later, or never, and how it ends quickly."""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# scipy takes every name of numpy, these tools for developers too, which take longer to load than scipy.sparse itself.
LATER = frozenset(("numpy.f2py", "numpy.testing"))


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
    # Classes and functions of modules are no garbage: look for some less often, and no more at the end.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)

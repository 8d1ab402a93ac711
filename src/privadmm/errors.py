"""What can go wrong, by name. The command line turns each into a message and its exit code."""


class PrivadmmError(Exception):
    """A named failure; nothing was released that is not in the ledger."""

    exit_code = 1


class ConfigError(PrivadmmError, ValueError):
    """A parameter or configuration is not usable; the message names it, what is allowed, and the fix."""

    exit_code = 2


class DataError(PrivadmmError, ValueError):
    """The data were refused while loading, before anything left a party."""


class ToleranceError(PrivadmmError):
    """A simulation's local problem was not solved to its tolerance: no limits kept its parameters within the proofs."""


class DivergedError(PrivadmmError):
    """Released iterates ran away: a function of the transcript, found before records are read again."""


class CheckpointError(PrivadmmError):
    """A checkpoint or run directory cannot be resumed."""


class LedgerError(PrivadmmError):
    """A ledger file is not ours, is damaged, or belongs to something else."""


class RefusedError(PrivadmmError):
    """A budget or policy said no, before any noise was drawn."""

    exit_code = 3


class LockedError(PrivadmmError):
    """A ledger is locked: a tick failed after records were read, and only its steward may unlock it."""

    exit_code = 3


class AbsentError(PrivadmmError):
    """A party left without which the run cannot go on. Nothing more was released."""


class ClusterError(PrivadmmError):
    """Workers or their scheduler cannot be reached, or do not answer in time."""


class MessageError(ClusterError):
    """A party sent what no party of its algorithm sends: another shape, another's name, no finite number."""


class BudgetWarning(UserWarning):
    """By its public facts a run has too little budget, or too few records, to beat a constant."""


class InterruptedRunError(PrivadmmError):
    """Somebody pressed Ctrl-C. `kept`: something was released, and the directory can be resumed."""

    def __init__(self, message: str, kept: bool) -> None:
        super().__init__(message)
        self.kept = kept


class StorageError(PrivadmmError):
    """The run directory, or a file for records beyond memory, cannot be written."""


class OutputError(PrivadmmError):
    """Standard output takes nothing more."""

"""The coordinator's side: the run, whether it is wanted, and the processes that are kept up for it."""

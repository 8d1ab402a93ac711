"""At the coordinator: the run, what is wanted of it, and the processes that are kept up for it."""

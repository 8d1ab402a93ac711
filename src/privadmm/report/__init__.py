"""A run as people keep it: the directory, its figures."""

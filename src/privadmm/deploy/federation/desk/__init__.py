"""The party's side: it answers letters, from its own directory alone."""

"""At a party: its answers to letters, from its own directory alone."""

"""What the papers prove of utility, computed, and drawn beside what a simulation measures."""

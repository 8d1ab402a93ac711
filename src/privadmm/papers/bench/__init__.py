"""Measures speed: workloads beside references, their goals, and how far each is from the least possible time."""

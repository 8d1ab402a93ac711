"""The [data] section of benchmarks that write their own records to data.npz beside the config."""

DATA = """
[data]
source = "data.npz"
classes = [-1, 1]
row_bound = 1.0
test_fraction = 0.0
"""

"""Records: declared schemas, readers, simulated splits, one embedded data set, and blocks of parties' records.

Its modules load numpy and nothing heavier; scipy and pyarrow are imported by the functions that use them.
"""

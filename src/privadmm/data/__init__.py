"""Records: declared schemas, readers, simulated splits, one embedded data set, and blocks of parties' records.

Importing this loads numpy and nothing heavier; scipy and pyarrow are imported by the functions that use them.
"""

from privadmm.data import adult, splits
from privadmm.data.raw import labels
from privadmm.data.readers import Records, read
from privadmm.data.schema import Category, Number, Schema

__all__ = ["Category", "Number", "Records", "Schema", "adult", "labels", "read", "splits"]

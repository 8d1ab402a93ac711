"""Records before they become a party's: declared schemas, readers, simulated splits, one embedded data set.

Importing this loads numpy and nothing heavier; scipy and pyarrow are imported by the functions that use them.
"""

from privadmm.data import adult, splits
from privadmm.data.readers import Records, read
from privadmm.data.schema import Category, Number, Schema, labels

__all__ = ["Category", "Number", "Records", "Schema", "adult", "labels", "read", "splits"]

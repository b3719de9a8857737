"""dlt's destination for lakes: ``dlt.pipeline(destination=lakevilla.dlt.lakevilla("s3://lake"))``.

This module needs the extra ``dlt``. Each load package is one transaction: readers see all of its
tables change together, or nothing.
"""

try:
    import dlt  # noqa: F401 (whether it is there)
except ImportError as error:
    raise ImportError(
        "lakevilla.dlt needs dlt, which is not installed here: `pip install 'lakevilla[dlt]'`"
    ) from error

from lakevilla.dbapi.dlt.factory import lakevilla

__all__ = ["lakevilla"]

"""Making the data source known to a session, with the lakes that it was connected to."""

from __future__ import annotations

import logging
import pickle
import threading
from typing import TYPE_CHECKING

from lakevilla.api.spark.source.access import Access
from lakevilla.api.spark.source.classes import data_source
from lakevilla.clock import SystemClock
from lakevilla.engines.spark.rows import first_line
from lakevilla.engines.spark.session import check_session
from lakevilla.errors import InvalidOperation
from lakevilla.ids import Ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["offer", "register_data_source"]

_LOG = logging.getLogger("lakevilla")
#: Names a session in this process: two Python objects may stand for one session of Spark.
_NAME = "spark.lakevilla.session"
_LOCK = threading.Lock()
#: The lakes of each session, and what was registered of them last.
_LAKES: dict[str, dict[str, Access]] = {}
_REGISTERED: dict[str, bytes] = {}


def register_data_source(spark: SparkSession) -> None:
    """Register ``spark.read.format("lakevilla")`` with a session, classic or Connect.

    ``lakevilla.connect(root, spark=spark)`` does this too, and passes on the lake's
    ``storage_options``: they travel with the data source, and no plan or option shows them. For
    a lake that the session was not connected to, the driver and the workers use the credentials
    of their machines. Credentials of a ``boto3_session`` are those at the time of ``connect``:
    connect again after they have expired.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.

    Raises
    ------
    InvalidOperation
        It is not a session, was stopped, is older than Spark 4.0, or does not accept a data
        source.

    Notes
    -----
    The Python of the driver and of the workers needs ``lakevilla``. If it is missing, the error
    names the interpreter.

    Options of ``spark.read.format("lakevilla").load("sales/orders")``:

    - ``lake``: the root; ``table``: instead of ``load``'s argument.
    - ``version`` (global) or ``timestamp`` (ISO, with its zone). A DataFrame is bound to the
      lake's state when ``load`` is called, and stays so.
    - ``columns``: names with commas between them. Spark asks a Python data source for all
      columns, so it is worth while to name those that are needed.
    - ``where``: a predicate in LakeVilla's language, by which files are left out.
    - ``partitions``: for about how many tasks at a time the files are cut; a task has
      4 MiB of files, or 128, or something between. By default those that the session ran at
      a time when the lake was connected; 32 where that may change or can't be asked.
    - ``pushdown``: ``true`` takes the filters of a query too, if the session has
      ``spark.sql.python.filterPushdown.enabled``. Spark 4 mixes up the filters of several
      uses of one DataFrame, so there it is only for one that is used in one place; in
      Spark 5, which does not, it is the default.
    - ``"filesOutside"``: directories elsewhere, with commas between them, from which files are
      read that the table's log names there; see ``files_outside`` of ``connect``.
    - ``startingVersion``: the table's changes from that global version on, instead of its rows.

    ``spark.readStream`` takes ``lake``, ``table``, ``columns``, ``where``, ``partitions`` and
    ``startingVersion``; the options maxFilesPerTrigger and maxBytesPerTrigger limit its batches.

    ``df.write.format("lakevilla").mode("append").save("sales/orders")`` is one transaction, with
    ``overwrite`` too; ``stream.writeStream.format("lakevilla")`` is one for each batch, and needs
    the option queryId. ``docs/spark.md`` has all options.

    Examples
    --------
    >>> lv.register_data_source(spark)
    >>> frame = spark.read.format("lakevilla").option("lake", lake.root).load("stock")
    >>> frame.count()
    1
    """
    check_session(spark)
    try:
        _register(spark, None)
    except Exception as error:
        raise InvalidOperation(
            f"the data source is refused: {first_line(error)}; without it, "
            "lakevilla.connect(root, spark=spark) reads by transactions"
        ) from error


def offer(spark: SparkSession, access: Access) -> None:
    """Add a lake to those of the session; if it takes no data source, all else goes on."""
    try:
        _register(spark, access)
    except Exception as error:
        _LOG.warning(
            "spark.read.format('lakevilla') is not there in this session: %s", first_line(error)
        )


def _register(spark: SparkSession, access: Access | None) -> None:
    with _LOCK:
        name = spark.conf.get(_NAME, None)
        if not name:
            name = Ids(SystemClock()).nonce()
            spark.conf.set(_NAME, name)
        lakes = _LAKES.setdefault(name, {})
        if access is not None:
            lakes[access.place.root] = access
        pickled = pickle.dumps(lakes)
        if _REGISTERED.get(name) != pickled:
            spark.dataSource.register(data_source(pickled))
            _REGISTERED[name] = pickled

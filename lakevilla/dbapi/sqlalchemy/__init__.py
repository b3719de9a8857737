"""SQLAlchemy's dialect of a lake: ``create_engine("lakevilla:///path")``.

It compiles to LakeVilla's SQL, and runs that through ``lakevilla.dbapi``. No lower module imports
it, and SQLAlchemy is imported here alone.
"""

try:
    import sqlalchemy  # noqa: F401 (whether it is there)
except ImportError as error:
    raise ImportError(
        "lakevilla.dbapi.sqlalchemy needs SQLAlchemy: pip install 'lakevilla[sqlalchemy]'"
    ) from error

from lakevilla.dbapi.sqlalchemy.dialect import LakeVillaDialect

__all__ = ["LakeVillaDialect"]

"""The SQLAlchemy dialect for lakes: ``create_engine("lakevilla:///path")``.

The dialect compiles to LakeVilla's SQL, and runs it by ``lakevilla.dbapi``. No other package
imports this one, and only this one imports SQLAlchemy.
"""

try:
    import sqlalchemy  # noqa: F401 (whether it is there)
except ImportError as error:
    raise ImportError(
        "lakevilla.dbapi.sqlalchemy needs SQLAlchemy: pip install 'lakevilla[sqlalchemy]'"
    ) from error

from lakevilla.dbapi.sqlalchemy.dialect import LakeVillaDialect, Nested, types_of

__all__ = ["LakeVillaDialect", "Nested", "types_of"]

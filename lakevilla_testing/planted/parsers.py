"""Slips in parsers: a form of damage that is no error of the library any more."""

from lakevilla.api.spark.source.batches import Offset
from lakevilla.engines import deletes
from lakevilla.formats.delta import deletion_vectors
from lakevilla.formats.iceberg.metadata import file
from lakevilla_testing.planted.edits import slip

slip(
    "no_rows_in_a_vector",
    "A vector of no rows, ends in an error of numpy.",
    deletion_vectors._decoded,
    ("np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)", "np.concatenate(parts)"),
    found_by="tests/unit/formats/delta/test_deletion_vectors.py::test_a_vector_may_have_no_rows",
)
slip(
    "metadata_with_a_list_for_an_object",
    "A part of Iceberg's metadata that is of another type ends in an error of Python.",
    file.decode_metadata,
    ("TypeError, KeyError, AttributeError, RecursionError", "KeyError, RecursionError"),
    found_by="tests/unit/formats/iceberg/test_metadata.py::test_a_metadata_field_with_a_list_of_other_things_is_reported",
)
slip(
    "footer_that_does_not_unpack",
    "A Puffin file whose footer says that it is compressed, and is not, ends in an error of Arrow.",
    deletes._named_in,
    ("ValueError, OSError, IndexError", "ValueError, IndexError"),
    found_by="tests/unit/engines/test_deletes.py::test_a_compressed_footer_that_does_not_unpack_is_refused",
)
slip(
    "offset_with_half_a_surrogate",
    "A damaged checkpoint of a stream ends in an error of Python's codecs.",
    vars(Offset)["of"].__func__,
    ("(msgspec.ValidationError, UnicodeEncodeError)", "msgspec.ValidationError"),
    found_by=(
        "tests/unit/api/spark/source/test_offsets.py::"
        "test_an_offset_of_a_damaged_checkpoint_is_refused[stored3]"
    ),
)

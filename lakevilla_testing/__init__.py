"""Tools that test the protocol, for this library's tests and for its users' tests.

A deterministic simulator of many clients over one store, faults that it injects, clients without
LakeVilla, and checkers of the results. They may import everything; no module of the library imports
them.
"""

try:
    import pyiceberg  # noqa: F401 (the simulated tables are of both formats)
except ImportError as error:
    raise ImportError(
        "lakevilla_testing needs pyiceberg, which is not installed here: "
        "install lakevilla-testing, which brings it"
    ) from error

"""Looking at all that a lake holds: whether it is there, and is what was written."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.api.applying.arguments import StateLike, state_name
from lakevilla.api.arguments import check_patterns
from lakevilla.api.client.catalog_names import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.engines.deletes import read_deletes
from lakevilla.errors import InvalidOperation
from lakevilla.maintenance.verify.verify import verify
from lakevilla.results import Report
from lakevilla.settings import shown
from lakevilla.store.cached.fresh import fresh

__all__ = ["Verifying"]


class Verifying:
    """What a lake says of its own integrity."""

    _client: LakeClient

    def verify(
        self,
        tables: Sequence[str] | None = None,
        *,
        at: StateLike | None = None,
        sample: float = 1.0,
    ) -> Report:
        """Compare the lake's objects and data files with what is known of them. Changes nothing.

        Leaves, pages, bases and commit objects are held against the hashes in their names. A data
        file whose hash is known is fetched whole and compared; of others the size, the footer
        and its number of rows are looked at. That is done for the tables as they are now and as
        each tag and branch has them, for each file once. See ``docs/integrity.md``.

        Parameters
        ----------
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything: then the data files of
            these tables alone are looked at.
        at : int, datetime or str, optional
            A global version, an aware time, or a ref: then the data files of that state alone
            are looked at.
        sample : float
            The share of data files that are looked into, above 0 and up to 1. They are drawn anew
            each day. Each file is asked for its size in any case.

        Returns
        -------
        Report
            ``ok`` is False if anything is wrong. A note tells how many files were compared, and
            of how many nobody knows the hash.

        Raises
        ------
        InvalidOperation
            A pattern fits no table, or ``sample`` is no share.
        RefNotFound, VersionNotFound
            There is no such state.

        Examples
        --------
        >>> report = lake.verify()
        >>> report.ok, [finding.kind for finding in report.findings]
        (True, ['verified'])
        """
        client = self._client
        client.main("verify")
        patterns = check_patterns("tables", tables)
        share = _share(sample)
        state = None if at is None else state_name(client, "at", at)
        with client.measured("verify"):
            looking = verify(client.context, patterns, state, share, read_deletes)
            report = client.run(fresh(looking))
        return named_report(report, catalog_names(client.context))


def _share(sample: object) -> float:
    is_number = isinstance(sample, int | float) and not isinstance(sample, bool)
    if not is_number or not 0 < sample <= 1:  # type: ignore[operator]
        raise InvalidOperation(
            f"sample must be a share of the files, above 0 and at most 1, not {shown(sample)}"
        )
    return float(sample)  # type: ignore[arg-type]

"""Run Apache Iceberg's compatibility kit for REST catalogs (RCK) against ``lakevilla serve``.

It fails if a test fails that ``expected.txt`` does not list, or passes that it lists. A new lake is
served from a temporary directory, on loopback; the kit's jars are fetched once, into ``.cache``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.ivy import CACHE, fetch, java, spark_jars

HERE = Path(__file__).parent
JARS = CACHE / "rck"
KIT = "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests"
RUN_SECONDS = 600

#: What the kit is told of the catalog. Its data files lie elsewhere, and none of them exists.
CLAIMS = {
    "local": "false",
    "warehouse": "lake",
    "requires-namespace-create": "true",
    "overrides-requested-location": "true",
    "supports-names-with-dot": "true",
}
FILES_OF_THE_KIT = "/path/to"


def main() -> int:
    """Return the exit status: 0 if the kit's tests end as expected."""
    fetch(HERE / "rck.ivy.xml", JARS)
    with tempfile.TemporaryDirectory() as directory:
        reports = Path(directory, "reports")
        with gateway(Path(directory, "lake")) as uri:
            said = run_kit(uri, reports)
        results = sorted(reports.glob("TEST-*.xml"))
        if not results:
            print(said[-5000:])
            return 1
        ended = {name: how for path in results for name, how in outcomes(path).items()}
    return judge(ended, expected())


@contextmanager
def gateway(root: Path) -> Iterator[str]:
    """Serve a new lake; yield the gateway's URI."""
    root.mkdir()
    command = [str(Path(sys.executable).with_name("lakevilla")), "serve", str(root), "--port", "0"]
    command += ["--option", f"files_outside={FILES_OF_THE_KIT}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SystemExit(f"the gateway did not start: {line}{process.stdout.read()}")
            yield found.group()
        finally:
            process.terminate()


def run_kit(uri: str, reports: Path) -> str:
    """Run all tests of the kit; return what it has printed."""
    claims = {**CLAIMS, "uri": uri}
    # One part of the kit reads the names with its prefix, and another part without it.
    given = [f"-D{prefix}{key}={value}" for prefix in ("rck.", "") for key, value in claims.items()]
    hadoop = map(str, spark_jars().glob("hadoop-client-*.jar"))
    command = [java(), "-Xmx800m", *given, "-cp", ":".join([f"{JARS}/*", *hadoop])]
    command += ["org.junit.platform.console.ConsoleLauncher", "execute", "-c", KIT]
    command += ["--reports-dir", str(reports)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    return done.stdout + done.stderr


def outcomes(report: Path) -> dict[str, str]:
    """Return how each test ended: ``passed``, ``skipped``, or the first line of its error."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        how = "passed"
        if case.find("skipped") is not None:
            how = "skipped"
        for kind in ("failure", "error"):
            wrong = case.find(kind)
            if wrong is not None:
                text = (wrong.get("message") or wrong.text or kind).strip()
                how = " ".join(text.split())[:200]
        found[str(case.get("name"))] = how
    return found


def expected() -> dict[str, str]:
    """Return the tests that fail, with the reason of each."""
    lines = (HERE / "expected.txt").read_text().splitlines()
    parted = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in parted}


def judge(ended: Mapping[str, str], known: Mapping[str, str]) -> int:
    """Print the results; return 0 if only tests failed that are known to fail."""
    failed = {name: how for name, how in ended.items() if how not in ("passed", "skipped")}
    for name in sorted(failed.keys() & known.keys()):
        print(f"fails as expected: {name}: {known[name]}")
    for name in sorted(failed.keys() - known.keys()):
        print(f"FAILS: {name}: {failed[name]}")
    for name in sorted(known.keys() - failed.keys()):
        print(f"does not fail any more, take it out of tests/rck/expected.txt: {name}")
    counts = [sum(how == one for how in ended.values()) for one in ("passed", "skipped")]
    print(f"{counts[0]} passed, {len(failed)} failed, {counts[1]} skipped of {len(ended)}")
    return int(failed.keys() != known.keys() or not counts[0])


if __name__ == "__main__":
    sys.exit(main())

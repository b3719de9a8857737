"""Serve objects on a port of loopback until the process is ended."""

import argparse

from lakevilla_testing.gcs.objects import Objects
from lakevilla_testing.gcs.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lakevilla_testing.gcs", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds-between-writes", type=float, default=0.0)
    parser.add_argument("--latency-seconds", type=float, default=0.0)
    given = parser.parse_args()
    Server(given.port, Objects(given.seconds_between_writes), given.latency_seconds).serve_forever()


if __name__ == "__main__":
    main()

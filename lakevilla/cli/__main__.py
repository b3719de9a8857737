"""``python -m lakevilla.cli``: the command line without its installed script."""

from lakevilla.cli import main

main()

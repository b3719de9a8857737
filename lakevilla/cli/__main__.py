"""``python -m lakevilla.cli``: run the command line without its installed script."""

from lakevilla.cli import main

main()

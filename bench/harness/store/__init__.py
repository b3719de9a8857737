"""Where a benchmark runs: a server as slow as a profile says, or a directory."""

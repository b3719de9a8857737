"""Hot rows: clients that change the same small file all the time."""

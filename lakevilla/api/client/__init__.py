"""One process at one lake: names, heartbeat, forks, catalogs. Knows no user."""

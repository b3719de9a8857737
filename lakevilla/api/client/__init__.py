"""One process at one lake: names, heartbeat, forks, catalogs. It knows nothing of users."""

"""One process at one lake: names, heartbeat, forks, catalogs. No user calls these modules."""

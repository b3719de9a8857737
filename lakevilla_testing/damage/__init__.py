"""Lakes whose objects are lost or set back, and what their clients do then."""

"""The only modules that touch obstore or a disk."""

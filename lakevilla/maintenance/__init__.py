"""Recovery, gc, vacuum, doctor: whoever cleans up after others."""

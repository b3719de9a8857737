"""Recovery, gc, vacuum and doctor: find and clean up what other clients have left."""

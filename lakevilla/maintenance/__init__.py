"""Recovery, gc, vacuum and doctor: cleaning up what other clients leave."""

"""Lives of drawn lakes, with branches, tags, clones, keys, upkeep and losses, beside a model."""

"""What a transaction does with whole states of the lake: applying, rolling back, merging."""

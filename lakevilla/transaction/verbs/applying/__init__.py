"""Operations of a transaction on whole states of the lake: applying, rolling back, merging."""

"""Operations that are performed again on a newer state, or put off until they must be."""

"""Operations that are performed again on a newer state, or deferred until they must be."""

"""SQL as LakeVilla reads it: the language of expressions, and statements."""

"""The tour: what LakeVilla does, in half a minute, on local files."""

"""The tour: what LakeVilla does, in two minutes, on local files."""

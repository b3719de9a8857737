"""The tour: LakeVilla's features, shown in half a minute on local files."""

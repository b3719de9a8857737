"""The tour: shows LakeVilla's features in half a minute, on local files."""

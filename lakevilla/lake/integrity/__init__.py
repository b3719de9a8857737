"""What is known of the content of data files: their hashes, wherever a commit has put them.

Delta's log has them as tags of files, Iceberg's manifests have no place for them. It asks HEAD,
its pages and commit objects, and reads no data file.
"""

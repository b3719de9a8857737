"""A server of Google Cloud Storage's XML API on loopback, as far as obstore speaks it.

``python -m lakevilla_testing.gcs PORT`` serves buckets of any name from memory. It has generations
and conditions, pages of lists, uploads in parts, copies, and the limit of writes of one object
(``--seconds-between-writes 1``). It takes any credentials. The JSON API, by which pyiceberg's files
and Hadoop's connector reach Google, is left out.
"""

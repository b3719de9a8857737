"""The global version log: HEAD, commit objects, pages, keys and lake files (design, section 9).

HEAD is the lake's commit point and its newest global version. Everything else
here is immutable, or bound to it.
"""

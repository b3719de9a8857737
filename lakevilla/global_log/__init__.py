"""The global version log: HEAD, commit objects, pages, keys and lake files (design, section 9).

HEAD is the lake's commit point and its newest global version. Every other object of this package
is immutable, or bound to HEAD.
"""

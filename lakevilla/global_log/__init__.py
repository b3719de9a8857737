"""The global version log: HEAD, commit objects, pages, keys and lake files (design, section 9).

HEAD holds the lake's newest global version; its replacement is the commit point. All other objects
of this package are immutable, or count only as far as HEAD confirms them.
"""

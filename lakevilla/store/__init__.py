"""Objects by key: five verbs, their outcomes, and the programs that ask for them.

``effects`` and ``base`` are what protocol code sees; ``runner`` carries effects
out against a backend, with the retries and read-backs of ``readback``. It
imports nothing of LakeVilla but errors, ids, clock and settings.
"""

"""Tables that HEAD has dropped, in a transaction that begins anew in their place.

``take_up`` says which can be, and makes one part of the transaction
(docs/design/0047-names-taken-up.md).
"""

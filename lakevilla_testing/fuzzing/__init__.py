"""Damaged objects and drawn texts: what the library makes of bytes that nobody vouches for.

`choices` turns the bytes of an input into decisions, `lakes` makes sound lakes, `damage` changes an
object of one, and `objects` runs verbs on the damaged lake and judges what they did.
"""

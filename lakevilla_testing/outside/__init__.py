"""Histories for other people's checkers, in the formats that Elle and Porcupine read."""

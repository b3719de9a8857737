"""Conditions that must hold after a history."""

"""What must hold after a history."""

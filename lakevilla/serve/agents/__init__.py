"""The lake for agents: tools that read it, and tools that change a branch of a session's own."""

"""The memory of one game: the bytes of its arrays, and what the process really grew by while games were played."""

"""Forms a federation, changes it, watches it and checks it."""

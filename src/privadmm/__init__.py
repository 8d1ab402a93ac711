"""privadmm."""

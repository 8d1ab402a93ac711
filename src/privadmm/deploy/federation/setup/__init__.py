"""How a federation is formed, changed, looked after and checked."""

"""Loops and branches in jaxprs, their derivatives and their batching."""

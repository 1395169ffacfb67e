"""Traces: those that record jaxprs, and those that programs define."""

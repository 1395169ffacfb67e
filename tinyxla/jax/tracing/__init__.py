"""Attributes, policies and states of traces and arrays that the interface of JAX alone has."""

"""The version of the library, once: the build reads it here."""

VERSION = "0.1.0"

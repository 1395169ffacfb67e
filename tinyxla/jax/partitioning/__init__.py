"""Partitioned programs: `pjit`, rules of partitioning, and the texts of shardings and programs."""

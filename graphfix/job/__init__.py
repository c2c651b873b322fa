"""The whole job on files: load, repair, verify, and only then write."""

from graphfix.job.one_file import repair_file

__all__ = ["repair_file"]

"""The parts of a report, one file each: every one turns facts of a run into words, tables and pictures."""

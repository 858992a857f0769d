"""From a data set to the records of a step: one record at a time, in portions that fit into memory."""

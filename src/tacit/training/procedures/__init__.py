"""Ready-made private procedures: one draw from a bounded posterior, a temperature for logits."""

"""The engine that needs no grid: delta by an integral along a vertical line, certified on both sides."""

"""The engine for few or rare steps: losses rounded onto a lattice, from above and from below, composed by FFT."""

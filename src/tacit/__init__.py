"""Tacit: private, Bayesian, uncertainty-aware training on PyTorch."""

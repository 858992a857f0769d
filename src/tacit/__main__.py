"""``python -m tacit`` is the ``tacit`` command."""

from tacit.commands import main

main()

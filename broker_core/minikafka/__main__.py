"""``python -m minikafka``: the command line, for places where its script is not on the path (notebooks)."""

from __future__ import annotations

from minikafka.cli.main import main

if __name__ == "__main__":
    main()

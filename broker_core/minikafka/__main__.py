"""``python -m minikafka``: the command line where its script is not on the path, as in many notebooks."""

from __future__ import annotations

from minikafka.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m corpusmill` is the command `corpusmill`."""

from corpusmill.cli import main

raise SystemExit(main())

"""``python -m intervalcert`` is the command line."""

from intervalcert.cli import main

raise SystemExit(main())

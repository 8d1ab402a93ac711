"""`python -m privadmm` is `privadmm`."""

from privadmm.cli import main

if __name__ == "__main__":
    main()

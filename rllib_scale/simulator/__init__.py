"""The scheduling problem as a compiled simulator. numpy and numba only: no gymnasium, torch or ray."""

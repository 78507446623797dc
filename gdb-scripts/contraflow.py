"""Makes gdb at home in a contraflow recording. Load it with `source`; gdb 13 or newer."""

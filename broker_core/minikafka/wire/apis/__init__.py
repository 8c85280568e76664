"""One module for each API: what is asked, what is answered, and the tables of both."""

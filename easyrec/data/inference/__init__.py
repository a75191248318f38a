"""`easyrec init`: looks at data (`profile`), finds out what columns mean (`roles`), writes it down (`proposal`)."""

"""The command line: one thin module a command, all of them listed in `easyrec.cli.main`."""

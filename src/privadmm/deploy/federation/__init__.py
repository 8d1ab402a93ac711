"""A federation: organisations that train one model and do not trust one another.

Each party has a directory with its policy, its records and its ledger; a coordinator proposes jobs. `Letter`s go
between them (protocol.py), whoever carries them (deploy/flower). desk/ answers them at a party, from its directory
(party.py) alone. hub/ asks, at the coordinator, for what it proposes (proposal.py). setup/ forms a federation, changes
it and checks it. layout.py, keys.py and signing.py are about the files and keys of both.
"""

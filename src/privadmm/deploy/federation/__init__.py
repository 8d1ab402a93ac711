"""A federation: organisations that train one model and do not trust one another.

Each party has a directory with its policy, its records and its ledger; a coordinator proposes jobs. They exchange
`Letter`s (protocol.py), which deploy/flower carries. desk/ answers letters at a party, from its directory (party.py)
alone. hub/ writes them at the coordinator, for the job that it proposes (proposal.py). setup/ forms a federation,
changes it and checks it. layout.py, keys.py and signing.py have the files and keys of both sides.
"""

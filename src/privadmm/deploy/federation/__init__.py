"""A federation: organisations that train one model and do not trust one another.

Each party has a directory with its policy, its records and its ledger; a coordinator proposes jobs. `Letter`s go
between them (protocol.py), whoever carries them (deploy/flower). At a party, party.py reads the policy, records.py the
records, and party_server.py answers. coordinator.py asks, proposal.py is what it proposes, label_holder.py its labels.
layout.py, init.py, doctor.py and keys.py are about files, and supervisor.py keeps processes up.
"""

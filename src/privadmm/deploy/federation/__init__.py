"""A federation: organisations that train one model and do not trust one another.

Each party is a directory of its own, with its policy, its records and its ledger; a coordinator proposes jobs. Between
them go `Letter`s (protocol.py), whatever carries them (deploy/flower). party.py is the policy, proposal.py what a job
says of itself, party_server.py answers at a party, and coordinator.py is the other side; layout.py, init.py, doctor.py
and keys.py are about their files.
"""

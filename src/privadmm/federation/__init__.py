"""A federation: organisations that train one model and do not trust one another.

Each party is a directory of its own, with its policy, its records and its ledger; a coordinator proposes jobs. Between
them go `Letter`s, whatever carries them (engines/flower). `party` is the policy, `proposal` what a job says of itself,
`desk` answers at a party, `coordinator` and `running` are the other side; `layout`, `making`, `checking` the files.
"""

"""The Flower engine (extra `flower`): a federation's letters carried by Flower, between organisations.

`server` is the ServerApp that drives a job from the coordinator's directory; `client` the ClientApp, which answers from
the party's; `pinned` sees that a party runs that ClientApp and no code that comes with a job.
"""

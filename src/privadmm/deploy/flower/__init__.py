"""The Flower engine (extra `flower`): a federation's letters carried by Flower, between organisations.

client.py is the ClientApp, which answers from the party's directory; post.py carries the coordinator's letters;
pinned.py sees that a party runs that ClientApp and no code that comes with a job. The ServerApp is runs/flower_app.py.
"""

"""The Flower engine (extra `flower`): carries a federation's letters between organisations.

client.py is the ClientApp, which answers from the party's directory; post.py carries the coordinator's letters;
pinned.py makes nodes run that ClientApp, and no code that comes with a job. The ServerApp is runs/flower_app.py.
"""

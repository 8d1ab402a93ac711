"""What a party's steward sees and decides: budgets, jobs and proposals in plain words, and a local page of them."""

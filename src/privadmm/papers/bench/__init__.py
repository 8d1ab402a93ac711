"""Speed, measured: workloads with a reference beside each, their goals, and the distance from the machine's floor."""

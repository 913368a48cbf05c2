"""What is scheduled: workloads as arrays, how they are drawn, and the files they come from."""

"""What an author of a plug-in reads: the contract of workloads, and that of technologies."""

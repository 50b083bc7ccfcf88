"""The job master: a shell around the scheduler, and what it keeps of a job."""

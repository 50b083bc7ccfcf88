"""The library behind `import mrstream`: jobs from Python functions or commands.

A job is what the command line can say and nothing more: `job.Job` makes the words, the `mrstream`
command runs them. Functions travel as one file of the job and are run by `child`, a program that
reads standard input and writes standard output like any other.
"""

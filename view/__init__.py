"""What a monitor in a terminal and pages in a browser share: the cluster as pictures and words.

Decides nothing and draws nothing: a medium (`tui`) turns what it gives into its own objects. All IO
is in `source`; `picture` is what is known now. Never imports what draws, neither a library nor a
package of ours.
"""

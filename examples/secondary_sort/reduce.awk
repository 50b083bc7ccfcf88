#!/usr/bin/awk -f
# The records of a year come hottest first: the first one of each is its maximum.
BEGIN { FS = "[.\t]" }
$1 != year { year = $1; print $1 "\t" $2 }

#!/usr/bin/awk -f
# Add up the ones of each URL.
BEGIN { FS = OFS = "\t" }
$1 != url { if (NR > 1) print url, total; url = $1; total = 0 }
{ total += $2 }
END { if (NR > 0) print url, total }

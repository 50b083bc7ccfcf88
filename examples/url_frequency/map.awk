#!/usr/bin/awk -f
# Each line of a web server's log asks for one URL: emit it with a 1.
{ split($0, quoted, "\""); split(quoted[2], request, " "); print request[2] "\t" 1 }

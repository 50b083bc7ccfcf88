#!/bin/sh
# A master on port 6000 and two workers; `mrstream p4 shutdown 6000` ends them.
python3 master.py 6000 &
python3 worker.py 6000 6001 &
python3 worker.py 6000 6002 &
wait

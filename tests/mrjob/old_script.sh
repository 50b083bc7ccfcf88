#!/bin/bash
# As one finds them: counts words with Hadoop's commands of three generations. old_script.sh INPUT
set -e
JAR=$(ls "$HADOOP_HOME"/share/hadoop/tools/lib/hadoop-streaming-*.jar)
hadoop fs -rm -r -f -skipTrash /old > /dev/null
hdfs dfs -mkdir -p hdfs:///old/in
hadoop fs -put "$1" hdfs://namenode:8020/old/in/text
hadoop fs -test -e /old/in/text
"$HADOOP_HOME/bin/hadoop" jar "$JAR" -D mapred.reduce.tasks=1 -input hdfs:///old/in -output /old/out \
    -mapper 'tr -s " " "\n"' -reducer 'uniq -c' 2> log
ID=$(grep -o 'Running job: job_[0-9_]*' log | cut -d' ' -f3)
mapred job -status "$ID" | grep -q 'Job state: SUCCEEDED'
mapred job -counter "$ID" 'Map-Reduce Framework' 'Map input records' > records
yarn application -status "${ID/job/application}" | grep -q 'Final-State : SUCCEEDED'
yarn application -list -appStates FINISHED | grep -q "${ID/job/application}"
mapred streaming -input /old/out -output /old/copy -mapper cat -numReduceTasks 0 2>> log
hadoop fs -cat /old/copy/part-*
hadoop fs -rmr -skipTrash /old > /dev/null

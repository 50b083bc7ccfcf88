import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.v2.MiniMRYarnCluster;

/**
 * Hadoop's own small cluster: a resource manager, two node managers and a history server, each task in
 * a container of its own. `java MiniCluster.java FILE` writes the configuration that clients need to FILE,
 * says so on standard output, and ends when standard input does.
 */
public class MiniCluster {
  /** For a Java that lives for seconds. */
  private static final String BRIEF = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto";

  public static void main(String[] words) throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", "file:///");
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    conf.set("yarn.scheduler.minimum-allocation-mb", "128");
    conf.set("yarn.nodemanager.vmem-check-enabled", "false");
    conf.set("yarn.app.mapreduce.am.resource.mb", "512");
    conf.set("yarn.app.mapreduce.am.command-opts", "-Xmx400m" + BRIEF);
    for (String task : new String[] {"map", "reduce"}) {
      conf.set("mapreduce." + task + ".memory.mb", "256");
      conf.set("mapreduce." + task + ".java.opts", "-Xmx200m" + BRIEF);
    }
    conf.set("mapreduce.task.io.sort.mb", "32");
    // Where a client asks for it: all of a small job in the container of its master.
    conf.set("mapreduce.job.ubertask.maxmaps", "20");
    // A job of seconds would mostly wait for the next of these.
    conf.set("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "100");
    conf.set("yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", "100");
    conf.set("mapreduce.client.progressmonitor.pollinterval", "200");
    conf.set("mapreduce.client.completion.pollinterval", "200");
    try (MiniMRYarnCluster cluster = new MiniMRYarnCluster("mrstream", 2)) {
      cluster.init(conf);
      cluster.start();
      try (OutputStream file = Files.newOutputStream(Path.of(words[0]))) {
        cluster.getConfig().writeXml(file);
      }
      System.out.println("ready");
      while (System.in.read() >= 0) {}
    }
    System.exit(0); // some of its threads would go on
  }
}

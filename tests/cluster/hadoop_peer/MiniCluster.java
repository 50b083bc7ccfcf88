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
  public static void main(String[] words) throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.defaultFS", "file:///");
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    conf.set("yarn.scheduler.minimum-allocation-mb", "128");
    conf.set("yarn.nodemanager.vmem-check-enabled", "false");
    conf.set("yarn.app.mapreduce.am.resource.mb", "512");
    conf.set("yarn.app.mapreduce.am.command-opts", "-Xmx400m");
    for (String task : new String[] {"map", "reduce"}) {
      conf.set("mapreduce." + task + ".memory.mb", "256");
      conf.set("mapreduce." + task + ".java.opts", "-Xmx200m");
    }
    conf.set("mapreduce.task.io.sort.mb", "32");
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

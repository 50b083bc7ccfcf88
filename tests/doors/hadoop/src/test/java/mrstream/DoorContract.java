package mrstream;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** A gateway's WebHDFS as Hadoop's contract tests want to know it. */
public class DoorContract extends AbstractFSContract {
  public DoorContract(Configuration conf) {
    super(conf);
    addConfResource("contract.xml");
    conf.set("fs.defaultFS", System.getProperty("door.url"));
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(URI.create(System.getProperty("door.url")), getConf());
  }

  @Override
  public String getScheme() {
    return "webhdfs";
  }

  @Override
  public Path getTestPath() {
    return new Path("/contract");
  }
}

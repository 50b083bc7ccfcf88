package mrstream;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.junit.Before;

public class TestFileSystem extends FileSystemContractBaseTest {
  @Before
  public void setUp() throws Exception {
    Configuration conf = new Configuration();
    fs = FileSystem.get(URI.create(System.getProperty("door.url")), conf);
  }
}

package mrstream;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.hadoop.security.token.TokenIdentifier;
import org.junit.Test;

/** Hadoop's client at a gateway that trusts no network: by a delegation token, and not without. */
public class TestToken {
  private static FileSystem connected(String text) throws Exception {
    UserGroupInformation user = UserGroupInformation.createRemoteUser("somebody");
    if (text != null) {
      Token<TokenIdentifier> token = new Token<>();
      token.decodeFromUrlString(text);
      user.addToken(token);
    }
    URI place = URI.create(System.getProperty("door.strict"));
    return user.doAs((PrivilegedExceptionAction<FileSystem>) () ->
        FileSystem.newInstance(place, new Configuration()));
  }

  @Test
  public void testTokenStandsForItsKey() throws Exception {
    FileSystem fs = connected(System.getProperty("door.token"));
    byte[] data = "by token".getBytes(StandardCharsets.UTF_8);
    Path path = new Path("/token/f");
    try (FSDataOutputStream out = fs.create(path, true)) {
      out.write(data);
    }
    byte[] got = new byte[data.length];
    try (FSDataInputStream in = fs.open(path)) {
      in.readFully(got);
    }
    assertArrayEquals(data, got);
    assertEquals("carol", fs.getFileStatus(path).getOwner());
  }

  @Test
  public void testNobodyComesInWithoutOne() throws Exception {
    assertThrows(IOException.class, () -> connected(null).listStatus(new Path("/")));
  }
}

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.streaming.StreamJob;
import org.apache.hadoop.util.ToolRunner;

/**
 * Runs streaming jobs one after the other on Hadoop's local runner: a JVM that is warm takes a
 * tenth of the time of one that starts. A request is a line of words in base64, with blanks
 * between them; an answer is a line: exit status, stdout and stderr, the latter two in base64.
 */
public class Jobs {
    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = requests.readLine()) != null; ) {
            String[] words = line.isEmpty() ? new String[0] : line.split(" ");
            for (int i = 0; i < words.length; i++) {
                byte[] word = Base64.getDecoder().decode(words[i].substring(1));
                words[i] = new String(word, StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            int status = run(words);
            System.out.flush();
            System.err.flush();
            Base64.Encoder encoder = Base64.getEncoder();
            answers.println(status + " ." + encoder.encodeToString(out.toByteArray()) + " ."
                    + encoder.encodeToString(err.toByteArray()));
            answers.flush();
        }
    }

    /** As HadoopStreaming.main does, but for its end of the whole JVM. */
    private static int run(String[] words) {
        try {
            int status = ToolRunner.run(new Configuration(), new StreamJob(), words);
            if (status != 0) {
                System.err.println("Streaming Command Failed!");
            }
            return status;
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            return 1;
        } finally {
            closeFileSystems();
        }
    }

    /** One that stays open keeps the settings of the job that opened it, such as a block size. */
    private static void closeFileSystems() {
        try {
            FileSystem.closeAll();
        } catch (java.io.IOException failed) {
            throw new java.io.UncheckedIOException(failed);
        }
    }
}

import org.apache.avro.Schema;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.mapred.AvroKey;
import org.apache.avro.mapred.FsInput;
import org.apache.avro.mapreduce.AvroJob;
import org.apache.avro.mapreduce.AvroKeyInputFormat;
import org.apache.avro.mapreduce.AvroKeyOutputFormat;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.TextOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.apache.parquet.avro.AvroParquetInputFormat;
import org.apache.parquet.avro.AvroParquetOutputFormat;
import org.apache.parquet.avro.AvroSchemaConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.util.HadoopInputFile;

/**
 * Copies records from one format to another by a MapReduce job of Hadoop: `Records [-D …] FROM TO
 * IN OUT`, where FROM is avro or parquet, and TO one of these or text. So Hadoop's own input format
 * finds every record of a file that was cut into splits, and its own output format writes it.
 */
public class Records extends Configured implements Tool {
    public static void main(String[] words) throws Exception {
        System.exit(ToolRunner.run(new Configuration(), new Records(), words));
    }

    @Override
    public int run(String[] words) throws Exception {
        boolean fromAvro = words[0].equals("avro");
        String to = words[1];
        Path in = new Path(words[2]);
        getConf().set("records.to", to);
        Job job = Job.getInstance(getConf());
        job.setJarByClass(Records.class);
        job.setMapperClass(Copy.class);
        job.setNumReduceTasks(0);
        FileInputFormat.addInputPath(job, in);
        FileOutputFormat.setOutputPath(job, new Path(words[3]));
        Schema schema = fromAvro ? avroSchema(in) : parquetSchema(in);
        if (fromAvro) {
            job.setInputFormatClass(AvroKeyInputFormat.class);
            AvroJob.setInputKeySchema(job, schema);
        } else {
            job.setInputFormatClass(AvroParquetInputFormat.class);
        }
        if (to.equals("avro")) {
            job.setOutputFormatClass(AvroKeyOutputFormat.class);
            AvroJob.setOutputKeySchema(job, schema);
        } else if (to.equals("parquet")) {
            job.setOutputFormatClass(AvroParquetOutputFormat.class);
            AvroParquetOutputFormat.setSchema(job, schema);
        } else {
            job.setOutputFormatClass(TextOutputFormat.class);
        }
        return job.waitForCompletion(false) ? 0 : 1;
    }

    /** Gives a record as the output format wants it. */
    public static class Copy extends Mapper<Object, Object, Object, Object> {
        @Override
        protected void map(Object key, Object value, Context context)
                throws java.io.IOException, InterruptedException {
            Object record = key instanceof AvroKey ? ((AvroKey<?>) key).datum() : value;
            switch (context.getConfiguration().get("records.to")) {
                case "avro" -> context.write(new AvroKey<>(record), NullWritable.get());
                case "parquet" -> context.write(null, record);
                default -> context.write(new Text(record.toString()), NullWritable.get());
            }
        }
    }

    private Schema avroSchema(Path directory) throws Exception {
        FsInput file = new FsInput(firstOf(directory), getConf());
        GenericDatumReader<GenericRecord> records = new GenericDatumReader<>();
        try (DataFileReader<GenericRecord> reader = new DataFileReader<>(file, records)) {
            return reader.getSchema();
        }
    }

    private Schema parquetSchema(Path directory) throws Exception {
        HadoopInputFile file = HadoopInputFile.fromPath(firstOf(directory), getConf());
        try (ParquetFileReader reader = ParquetFileReader.open(file)) {
            return new AvroSchemaConverter(getConf()).convert(
                    reader.getFileMetaData().getSchema());
        }
    }

    private Path firstOf(Path directory) throws Exception {
        for (FileStatus file : directory.getFileSystem(getConf()).listStatus(directory)) {
            if (!file.getPath().getName().startsWith("_") && file.isFile()) {
                return file.getPath();
            }
        }
        throw new java.io.FileNotFoundException(directory + " holds no file");
    }
}

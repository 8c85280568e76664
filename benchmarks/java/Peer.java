import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import kafka.common.TopicAndPartition;
import kafka.log.Cleaner;
import kafka.log.CleanerConfig;
import kafka.log.Log;
import kafka.log.LogConfig;
import kafka.log.LogManager;
import kafka.log.LogToClean;
import kafka.log.SkimpyOffsetMap;
import kafka.message.ByteBufferMessageSet;
import kafka.message.MessageSet;
import kafka.server.BrokerState;
import kafka.utils.Scheduler;
import kafka.utils.SystemTime$;
import kafka.utils.Throttler;
import scala.Function0;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Apache Kafka 0.10.1.1's own storage code for the log_*.py benchmarks. A command comes as a line of words with tabs
 * between; the answer is a line "ok name=value ...". What a command takes and gives is said at its method.
 */
public final class Peer {
    private static final Option<Object> NO_BOUND = Option.empty();
    private static final Map<String, Log> OPEN = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            String answer;
            try {
                answer = "ok " + answer(words[0], Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = "error " + error;
            }
            System.out.println(answer);
        }
    }

    private static String answer(String command, String[] words) throws Exception {
        switch (command) {
            case "append":
                return append(words);
            case "read":
                return read(words);
            case "recover":
                return recover(words);
            case "open":
                return open(words);
            case "find":
                return find(words);
            case "clean":
                return clean(words);
            case "beside":
                return beside(words);
            default:
                throw new IllegalArgumentException(command);
        }
    }

    /** Seconds of processor and wall from its making; read gives them as words of an answer. */
    private static final class Stopwatch {
        private final long wall = System.nanoTime();
        private final long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();

        double cpu() {
            return (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu) / 1e9;
        }

        double wall() {
            return (System.nanoTime() - wall) / 1e9;
        }

        String read() {
            return "cpu_s=" + cpu() + " wall_s=" + wall();
        }
    }

    /** Runs nothing: no flush of full segments in the background, and no removal, as on the other side. */
    private static final class Idle implements Scheduler {
        @Override
        public void startup() {}

        @Override
        public void shutdown() {}

        @Override
        public boolean isStarted() {
            return true;
        }

        @Override
        public void schedule(String name, Function0<BoxedUnit> work, long delay, long period, TimeUnit unit) {}

        @Override
        public long schedule$default$3() {
            return 0;
        }

        @Override
        public long schedule$default$4() {
            return -1;
        }

        @Override
        public TimeUnit schedule$default$5() {
            return TimeUnit.MILLISECONDS;
        }
    }

    private static Log log(String directory, Object... settings) {
        Properties properties = new Properties();
        for (int i = 0; i < settings.length; i += 2) properties.put(settings[i], settings[i + 1].toString());
        new File(directory).mkdirs();
        return new Log(new File(directory), new LogConfig(properties), 0L, new Idle(), SystemTime$.MODULE$);
    }

    /** Cuts a file into pieces of a size. */
    private static byte[][] pieces(String file, int size) throws Exception {
        byte[] all = Files.readAllBytes(new File(file).toPath());
        byte[][] found = new byte[all.length / size][];
        for (int i = 0; i < found.length; i++) found[i] = Arrays.copyOfRange(all, i * size, (i + 1) * size);
        return found;
    }

    /** DIRECTORY SEGMENT_BYTES POOL SET_BYTES COUNT keep|remove: append COUNT sets to a new log. */
    private static String append(String[] words) throws Exception {
        byte[][] sets = pieces(words[2], Integer.parseInt(words[3]));
        int count = Integer.parseInt(words[4]);
        Log log = log(words[0], "segment.bytes", words[1]);
        Stopwatch watch = new Stopwatch();
        for (int i = 0; i < count; i++) append(log, sets[i % sets.length]);
        String answer = watch.read() + " end_offset=" + log.logEndOffset();
        if (words[5].equals("keep")) {
            log.close();
            log.removeLogMetrics();
        } else {
            log.delete();
        }
        return answer;
    }

    private static void append(Log log, byte[] set) {
        log.append(new ByteBufferMessageSet(ByteBuffer.wrap(set)), true);
    }

    /**
     * DIRECTORY SLICE_BYTES MESSAGE_BYTES PORT PASSES MODE: send the log in slices, PASSES times, to a drain on
     * the loopback, which is told MODE (a byte) and answers when all has come.
     */
    private static String read(String[] words) throws Exception {
        Log log = opened(words[0]);
        int slice = Integer.parseInt(words[1]);
        int message = Integer.parseInt(words[2]);
        int passes = Integer.parseInt(words[4]);
        try (SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[3])));
                Selector selector = Selector.open()) {
            channel.write(ByteBuffer.wrap(new byte[] {(byte) words[5].charAt(0)}));
            channel.configureBlocking(false);
            SelectionKey key = channel.register(selector, SelectionKey.OP_WRITE);
            long sent = 0;
            Stopwatch watch = new Stopwatch();
            for (int pass = 0; pass < passes; pass++) {
                long end = log.logEndOffset();
                for (long offset = 0; offset < end; ) {
                    MessageSet found = log.read(offset, slice, NO_BOUND, false).messageSet();
                    int size = found.sizeInBytes();
                    for (int at = 0; at < size; ) {
                        int written = found.writeTo(channel, at, size - at);
                        at += written;
                        if (at < size) {
                            selector.select();
                            selector.selectedKeys().clear();
                        }
                    }
                    sent += size;
                    offset += size / message;
                }
            }
            channel.shutdownOutput();
            key.cancel();
            selector.selectNow();
            channel.configureBlocking(true);
            ByteBuffer told = ByteBuffer.allocate(16);
            while (told.hasRemaining() && channel.read(told) >= 0) {}
            return watch.read() + " sent=" + sent + " came=" + told.getLong(0) + " crc=" + told.getLong(8);
        }
    }

    private static Log opened(String directory) {
        return OPEN.computeIfAbsent(directory, name -> log(name));
    }

    /** DIRECTORY: open a log as it lies there. */
    private static String recover(String[] words) {
        Stopwatch watch = new Stopwatch();
        Log log = log(words[0]);
        String answer = watch.read() + " end_offset=" + log.logEndOffset();
        log.close();
        log.removeLogMetrics();
        return answer;
    }

    /** DIRECTORY THREADS: open a data directory, and close it cleanly, which is not timed. */
    private static String open(String[] words) {
        CleanerConfig cleaner = new CleanerConfig(1, 1 << 20, 0.9, 1 << 19, 1 << 20, Double.MAX_VALUE, 15_000, false, "MD5");
        scala.collection.Map<String, LogConfig> topics = scala.collection.immutable.Map$.MODULE$.<String, LogConfig>empty();
        long before = resident();
        Stopwatch watch = new Stopwatch();
        LogManager manager = new LogManager(
            new File[] {new File(words[0])}, topics, new LogConfig(new Properties()), cleaner, Integer.parseInt(words[1]),
            1L << 40, 1L << 40, 1L << 40, new Idle(), new BrokerState(), SystemTime$.MODULE$);
        String answer = watch.read();
        answer += " resident_before=" + before + " resident_after=" + resident();
        long ends = 0;
        scala.collection.Iterator<Log> logs = manager.allLogs().iterator();
        while (logs.hasNext()) {
            Log log = logs.next();
            ends += log.logEndOffset();
            log.removeLogMetrics();
        }
        answer += " logs=" + manager.allLogs().size() + " end_offsets=" + ends;
        manager.shutdown();
        return answer;
    }

    /** Bytes of this process in memory, -1 where the system does not say. */
    private static long resident() {
        try {
            String[] fields = Files.readAllLines(new File("/proc/self/statm").toPath()).get(0).split(" ");
            return Long.parseLong(fields[1]) * 4096;
        } catch (java.io.IOException error) {
            return -1;
        }
    }

    /** DIRECTORY OFFSETS: look up each offset of a file of int64. */
    private static String find(String[] words) throws Exception {
        Log log = opened(words[0]);
        long[] offsets = new long[(int) (new File(words[1]).length() / 8)];
        ByteBuffer.wrap(Files.readAllBytes(new File(words[1]).toPath())).asLongBuffer().get(offsets);
        long positions = 0;
        Stopwatch watch = new Stopwatch();
        for (long offset : offsets)
            positions += log.read(offset, 1, NO_BOUND, false).fetchOffsetMetadata().relativePositionInSegment();
        return watch.read() + " positions=" + positions;
    }

    /** DIRECTORY SEGMENT_BYTES DEDUPE_BYTES: clean all full segments. */
    private static String clean(String[] words) throws Exception {
        Log log = log(words[0], "segment.bytes", words[1], "cleanup.policy", "compact");
        Cleaner cleaner = cleaner(Integer.parseInt(words[2]));
        Stopwatch watch = new Stopwatch();
        long end = cleaner.clean(toClean(log));
        String answer = watch.read() + " cleaned_to=" + end;
        log.close();
        log.removeLogMetrics();
        return answer;
    }

    private static LogToClean toClean(Log log) {
        return new LogToClean(log.topicAndPartition(), log, 0L, log.activeSegment().baseOffset());
    }

    /** As the release's LogCleaner makes it from its defaults, for one thread and without a bound on its rate. */
    private static Cleaner cleaner(int dedupeBytes) {
        Function1<TopicAndPartition, BoxedUnit> goOn = new AbstractFunction1<TopicAndPartition, BoxedUnit>() {
            @Override
            public BoxedUnit apply(TopicAndPartition partition) {
                return BoxedUnit.UNIT;
            }
        };
        Throttler unbounded = new Throttler(Double.MAX_VALUE, 300, true, "cleaner", "bytes", SystemTime$.MODULE$);
        SkimpyOffsetMap map = new SkimpyOffsetMap(dedupeBytes, "MD5");
        return new Cleaner(0, map, 1 << 18, 1_000_012, 0.9, unbounded, SystemTime$.MODULE$, goOn);
    }

    /**
     * DIRECTORY SEGMENT_BYTES DEDUPE_BYTES OTHER POOL SET_BYTES OTHER_BYTES SECONDS: append sets to another log for
     * SECONDS, then until a cleaning in another thread has ended; sets a second of both.
     */
    private static String beside(String[] words) throws Exception {
        Log log = log(words[0], "segment.bytes", words[1], "cleanup.policy", "compact");
        Cleaner cleaner = cleaner(Integer.parseInt(words[2]));
        byte[][] sets = pieces(words[4], Integer.parseInt(words[5]));
        long most = Long.parseLong(words[6]) / sets[0].length;
        long until = System.nanoTime() + (long) (Double.parseDouble(words[7]) * 1e9);
        double[] alone = rate(words[3], sets, most, () -> System.nanoTime() < until);
        AtomicReference<Exception> failure = new AtomicReference<>();
        Thread cleaning = new Thread(() -> {
            try {
                cleaner.clean(toClean(log));
            } catch (Exception error) {
                failure.set(error);
            }
        });
        cleaning.start();
        double[] beside = rate(words[3], sets, most, cleaning::isAlive);
        if (failure.get() != null) throw failure.get();
        log.close();
        log.removeLogMetrics();
        return "alone=" + alone[0] + " beside=" + beside[0] + " alone_cpu=" + alone[1] + " beside_cpu=" + beside[1];
    }

    /**
     * Sets a second, of the wall and of the processor, that a log takes while a condition holds; it is begun anew when
     * it has most of them.
     */
    private static double[] rate(String directory, byte[][] sets, long most, BooleanSupplier goOn) {
        Log log = log(directory);
        Stopwatch watch = new Stopwatch();
        long count = 0;
        for (; count == 0 || goOn.getAsBoolean(); count++) {
            if (count % most == most - 1) {
                log.delete();
                log = log(directory);
            }
            append(log, sets[(int) (count % sets.length)]);
        }
        double[] found = {count / watch.wall(), count / watch.cpu()};
        log.delete();
        return found;
    }
}

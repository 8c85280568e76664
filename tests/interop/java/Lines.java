import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

/** The protocol of tests/interop/driver.py, for programs in Java: one line a command, answers on stdout. */
public final class Lines {
    /** What a client does for a command. It prints its answer with {@link #reply}. */
    public interface Commands {
        void run(String[] words, String[] lines) throws Exception;
    }

    /** A member of a group, polled on a thread of its own; what it is asked happens between two polls. */
    public interface Member extends Runnable {
        void ask(String what) throws InterruptedException;
    }

    public static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void serve(Commands commands) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            String[] more = new String[words[0].equals("produce") ? Integer.parseInt(words[4]) : 0];
            for (int i = 0; i < more.length; i++) more[i] = in.readLine();
            try {
                commands.run(words, more);
                print("ok");
            } catch (Throwable error) {
                print("failed " + describe(error));
            }
        }
        System.exit(0);
    }

    public static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void reply(Object... words) {
        print("> " + join(words));
    }

    public static void event(String member, Object... words) {
        print("@ " + member + " " + join(words));
    }

    private static String join(Object... words) {
        return java.util.Arrays.stream(words).map(String::valueOf).collect(Collectors.joining(" "));
    }

    public static String partitions(Collection<Integer> partitions) {
        return partitions.isEmpty() ? "-"
            : partitions.stream().sorted().map(String::valueOf).collect(Collectors.joining(","));
    }

    public static String encode(byte[] bytes) {
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }

    public static byte[] decode(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word.substring(1));
    }

    public static String describe(Throwable error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        StringWriter trace = new StringWriter();
        cause.printStackTrace(new PrintWriter(trace));
        System.err.println(trace);
        return cause.toString().replace('\n', ' ');
    }
}

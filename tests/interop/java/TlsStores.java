import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.Key;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLException;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * Java's names of certificates, the stores that Kafka reads, and its side of TLS, for tests/interop/test_tls_stores.py
 * and tests/interop/test_tls_handshakes.py.
 *
 *     name BYTES               answers with the name (X.501 in DER) as an X500Principal writes it
 *     subject BYTES            answers with the name of a certificate's owner
 *     stores [NAME VALUE]…     reads the stores of these settings as Kafka does; answers with "key", the key and its
 *                              chain, and "trusted" and the certificates that are trusted, for each store that there is
 *
 *     tls SIDE HOST [NAME VALUE]…   begins a handshake with Kafka's TLS as "client" of a host or as "server"
 *     bytes BYTES              answers with what to send to the peer, and "going", "complete", or why it failed
 *
 * All words are encoded but the first, SIDE and the names of settings.
 */
public final class TlsStores {
    private static SSLEngine engine;
    private static ByteArrayOutputStream received;

    public static void main(String[] arguments) throws Exception {
        Lines.serve((words, lines) -> {
            switch (words[0]) {
                case "name" -> reply(new X500Principal(Lines.decode(words[1])).getName());
                case "subject" -> reply(subject(Lines.decode(words[1])));
                case "stores" -> stores(words);
                case "tls" -> begin(words);
                case "bytes" -> goOn(Lines.decode(words[1]));
                default -> throw new IllegalArgumentException(words[0]);
            }
        });
    }

    private static void reply(String text) {
        Lines.reply(Lines.encode(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static String subject(byte[] certificate) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        X509Certificate parsed = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(certificate));
        return parsed.getSubjectX500Principal().getName();
    }

    private static Map<String, Object> settings(String[] words, int from) {
        Map<String, Object> given = new HashMap<>();
        for (int i = from; i < words.length; i += 2)
            given.put(words[i], new String(Lines.decode(words[i + 1]), StandardCharsets.UTF_8));
        Map<String, Object> parsed = new ConfigDef().withClientSslSupport().parse(given);
        if (given.containsKey("ssl.client.auth")) parsed.put("ssl.client.auth", given.get("ssl.client.auth"));
        return parsed;
    }

    private static void begin(String[] words) throws SSLException {
        Map<String, Object> settings = settings(words, 3);
        DefaultSslEngineFactory factory = new DefaultSslEngineFactory();
        factory.configure(settings);
        String host = new String(Lines.decode(words[2]), StandardCharsets.UTF_8);
        String algorithm = (String) settings.get("ssl.endpoint.identification.algorithm");
        engine = words[1].equals("client")
            ? factory.createClientSslEngine(host, 9093, algorithm)
            : factory.createServerSslEngine(host, 9093);
        engine.beginHandshake();
        received = new ByteArrayOutputStream();
    }

    private static void goOn(byte[] bytes) throws Exception {
        received.write(bytes);
        ByteBuffer in = ByteBuffer.wrap(received.toByteArray());
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        String state;
        try {
            state = handshake(in, out) ? "complete" : "going";
        } catch (SSLException error) {
            state = Lines.encode(String.valueOf(error.getMessage()).getBytes(StandardCharsets.UTF_8));
            wrap(out); // the alert
        }
        received = new ByteArrayOutputStream();
        received.write(in.array(), in.position(), in.remaining());
        Lines.reply(Lines.encode(out.toByteArray()), state);
    }

    private static boolean handshake(ByteBuffer in, ByteArrayOutputStream out) throws Exception {
        ByteBuffer plain = ByteBuffer.allocate(1 << 16);
        while (true) {
            switch (engine.getHandshakeStatus()) {
                case NEED_TASK -> {
                    for (Runnable task; (task = engine.getDelegatedTask()) != null; ) task.run();
                }
                case NEED_WRAP -> {
                    if (!wrap(out)) throw new SSLException("closed");
                }
                default -> {
                    boolean isComplete = engine.getHandshakeStatus() == HandshakeStatus.NOT_HANDSHAKING;
                    if (!in.hasRemaining()) return isComplete && !engine.getSession().getProtocol().equals("NONE");
                    SSLEngineResult result = engine.unwrap(in, plain);
                    plain.clear();
                    if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW) return isComplete;
                    if (result.getStatus() == SSLEngineResult.Status.CLOSED) throw new SSLException("closed");
                }
            }
        }
    }

    /** Writes what the engine has to send. Returns false when it is closed. */
    private static boolean wrap(ByteArrayOutputStream out) throws SSLException {
        ByteBuffer encrypted = ByteBuffer.allocate(1 << 16);
        SSLEngineResult result = engine.wrap(ByteBuffer.allocate(0), encrypted);
        out.write(encrypted.array(), 0, encrypted.position());
        return result.getStatus() != SSLEngineResult.Status.CLOSED;
    }

    private static void stores(String[] words) throws Exception {
        Map<String, Object> parsed = settings(words, 1);
        DefaultSslEngineFactory factory = new DefaultSslEngineFactory();
        factory.configure(parsed);
        KeyStore keys = factory.keystore();
        Password password = (Password) parsed.get("ssl.key.password");
        if (password == null) password = (Password) parsed.get("ssl.keystore.password");
        char[] secret = password == null ? null : password.value().toCharArray();
        if (keys != null)
            for (String alias : Collections.list(keys.aliases())) {
                Key key = keys.isKeyEntry(alias) ? keys.getKey(alias, secret) : null;
                if (key == null) continue;
                StringBuilder answer = new StringBuilder(Lines.encode(key.getEncoded()));
                for (Certificate certificate : keys.getCertificateChain(alias))
                    answer.append(' ').append(Lines.encode(certificate.getEncoded()));
                Lines.reply("key", answer);
            }
        KeyStore trusted = factory.truststore();
        if (trusted == null) return;
        TreeSet<String> certificates = new TreeSet<>();
        for (String alias : Collections.list(trusted.aliases()))
            certificates.add(Lines.encode(trusted.getCertificate(alias).getEncoded()));
        Lines.reply("trusted", String.join(" ", certificates));
    }
}

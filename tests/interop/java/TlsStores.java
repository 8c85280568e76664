import java.io.ByteArrayInputStream;
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
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * Java's names of certificates, and the stores that Kafka reads, for tests/interop/test_tls_stores.py.
 *
 *     name BYTES               answers with the name (X.501 in DER) as an X500Principal writes it
 *     subject BYTES            answers with the name of a certificate's owner
 *     stores [NAME VALUE]…     reads the stores of these settings as Kafka does; answers with "key", the key and its
 *                              chain, and "trusted" and the certificates that are trusted, for each store that there is
 *
 * All words are encoded but the first, and the names of settings.
 */
public final class TlsStores {
    public static void main(String[] arguments) throws Exception {
        Lines.serve((words, lines) -> {
            switch (words[0]) {
                case "name" -> reply(new X500Principal(Lines.decode(words[1])).getName());
                case "subject" -> reply(subject(Lines.decode(words[1])));
                case "stores" -> stores(words);
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

    private static void stores(String[] words) throws Exception {
        Map<String, Object> given = new HashMap<>();
        for (int i = 1; i < words.length; i += 2)
            given.put(words[i], new String(Lines.decode(words[i + 1]), StandardCharsets.UTF_8));
        Map<String, Object> parsed = new ConfigDef().withClientSslSupport().parse(given);
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

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslClient;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;

/**
 * Kafka's side of SASL exchanges, for tests/interop/test_sasl_mechanisms.py. All words but mechanisms are encoded.
 *
 *     client MECHANISM USER PASSWORD [OPTION VALUE]…   begins an exchange; answers with the first message
 *     server MECHANISM USER PASSWORD [OPTION VALUE]…   begins an exchange
 *     message BYTES                                    answers with the next message and "complete" or "continue"
 *     credential MECHANISM PASSWORD                    answers with a new credential
 *     jaas TEXT                                        answers with module, flag, and a line for each option
 *     validate TOKEN [SETTING VALUE]…                  answers with user, end in ms, and the scope, or an error
 *     fetch [SETTING VALUE]… - [OPTION VALUE]…         answers with a token of an identity provider, user and end
 *
 * OAUTHBEARER takes the options of its JAAS configuration in place of a password.
 */
public final class SaslMechanisms {
    private static final String JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url";
    private static final String TOKEN_URL = "sasl.oauthbearer.token.endpoint.url";
    private static SaslClient client;
    private static SaslServer server;

    public static void main(String[] arguments) throws Exception {
        Lines.serve((words, lines) -> {
            switch (words[0]) {
                case "client" -> {
                    client = newClient(words[1], text(words[2]), text(words[3]), options(words, 4));
                    server = null;
                    Lines.reply(Lines.encode(client.evaluateChallenge(new byte[0])));
                }
                case "server" -> server = newServer(words[1], text(words[2]), text(words[3]), options(words, 4));
                case "message" -> answer(Lines.decode(words[1]));
                case "credential" -> Lines.reply(ScramCredentialUtils.credentialToString(
                    new ScramFormatter(ScramMechanism.forMechanismName(words[1])).generateCredential(text(words[2]), 4096)));
                case "jaas" -> parse(text(words[1]));
                case "validate" -> validate(text(words[1]), options(words, 2));
                case "fetch" -> fetch(words);
                default -> throw new IllegalArgumentException(words[0]);
            }
        });
    }

    private static void answer(byte[] message) throws Exception {
        boolean isServer = server != null;
        // The JDK's client of PLAIN is complete after its first message.
        boolean isOver = !isServer && client.isComplete();
        byte[] next = isServer ? server.evaluateResponse(message) : isOver ? null : client.evaluateChallenge(message);
        boolean isComplete = isServer ? server.isComplete() : client.isComplete();
        String name = isServer && isComplete ? server.getAuthorizationID() : "";
        Lines.reply(Lines.encode(next), isComplete ? "complete" : "continue", Lines.encode(name.getBytes("UTF-8")));
    }

    private static SaslClient newClient(String mechanism, String user, String password, Map<String, String> options)
            throws Exception {
        if (mechanism.equals("OAUTHBEARER")) return newOAuthClient(options);
        CallbackHandler handler = callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback asked) asked.setName(user);
                else if (callback instanceof PasswordCallback asked) asked.setPassword(password.toCharArray());
                else if (callback instanceof ScramExtensionsCallback asked) asked.extensions(options);
                else throw new UnsupportedCallbackException(callback);
            }
        };
        if (mechanism.equals("PLAIN"))
            return Sasl.createSaslClient(new String[] {mechanism}, null, "kafka", "localhost", Map.of(), handler);
        return new ScramSaslClient(ScramMechanism.forMechanismName(mechanism), handler);
    }

    private static SaslServer newServer(String mechanism, String user, String password, Map<String, String> options)
            throws Exception {
        if (mechanism.equals("OAUTHBEARER")) {
            var validator = new OAuthBearerUnsecuredValidatorCallbackHandler();
            validator.configure(Map.of(), mechanism, entries(options));
            return new OAuthBearerSaslServer(validator);
        }
        ScramMechanism scram = ScramMechanism.forMechanismName(mechanism);
        var credential = scram == null ? null : new ScramFormatter(scram).generateCredential(password, 8192);
        CallbackHandler handler = callbacks -> {
            String name = null;
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback asked) name = asked.getDefaultName();
                else if (callback instanceof PlainAuthenticateCallback asked)
                    asked.authenticated(user.equals(name) && password.equals(new String(asked.password())));
                else if (callback instanceof ScramCredentialCallback asked && user.equals(name))
                    asked.scramCredential(credential);
            }
        };
        return scram == null ? new PlainSaslServer(handler) : new ScramSaslServer(scram, Map.of(), handler);
    }

    private static SaslClient newOAuthClient(Map<String, String> options) throws Exception {
        var login = new OAuthBearerUnsecuredLoginCallbackHandler();
        login.configure(Map.of(), "OAUTHBEARER", entries(options));
        var token = new OAuthBearerTokenCallback();
        var extensions = new SaslExtensionsCallback();
        login.handle(new Callback[] {token, extensions});
        return new OAuthBearerSaslClient(new AuthenticateCallbackHandler() {
            @Override
            public void handle(Callback[] callbacks) {
                for (Callback callback : callbacks) {
                    if (callback instanceof OAuthBearerTokenCallback asked) asked.token(token.token());
                    else if (callback instanceof SaslExtensionsCallback asked) asked.extensions(extensions.extensions());
                }
            }

            @Override
            public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) { }

            @Override
            public void close() { }
        });
    }

    private static void validate(String token, Map<String, String> settings) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", settings.get(JWKS_URL));
        var validator = new OAuthBearerValidatorCallbackHandler();
        validator.configure(parsed(settings), "OAUTHBEARER", entries(Map.of()));
        var asked = new OAuthBearerValidatorCallback(token);
        validator.handle(new Callback[] {asked});
        validator.close();
        if (asked.token() == null) throw new IllegalArgumentException(asked.errorStatus());
        Lines.reply(encode(asked.token().principalName()), Long.toString(asked.token().lifetimeMs()));
    }

    private static void fetch(String[] words) throws Exception {
        int dash = List.of(words).indexOf("-");
        Map<String, String> settings = options(Arrays.copyOf(words, dash), 1);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", settings.get(TOKEN_URL));
        var login = new OAuthBearerLoginCallbackHandler();
        login.configure(parsed(settings), "OAUTHBEARER", entries(options(words, dash + 1)));
        var asked = new OAuthBearerTokenCallback();
        login.handle(new Callback[] {asked});
        login.close();
        var token = asked.token();
        Lines.reply(encode(token.value()), encode(token.principalName()), Long.toString(token.lifetimeMs()));
    }

    private static Map<String, Object> parsed(Map<String, String> settings) {
        var definition = new ConfigDef();
        SaslConfigs.addClientSaslSupport(definition);
        var values = new HashMap<>(definition.parse(settings));
        values.values().removeIf(value -> value == null);
        return values;
    }

    private static void parse(String text) throws Exception {
        var constructor = Class.forName("org.apache.kafka.common.security.JaasConfig")
            .getDeclaredConstructor(String.class, String.class);
        constructor.setAccessible(true);
        var entries = ((Configuration) constructor.newInstance("c", text)).getAppConfigurationEntry("c");
        if (entries.length != 1) throw new IllegalArgumentException(entries.length + " modules");
        String flag = entries[0].getControlFlag().toString().replaceAll(".* ", "");
        Lines.reply(encode(entries[0].getLoginModuleName()), flag);
        for (var option : new HashMap<String, Object>(entries[0].getOptions()).entrySet())
            Lines.reply(encode(String.valueOf(option.getKey())), encode((String) option.getValue()));
    }

    private static List<AppConfigurationEntry> entries(Map<String, String> options) {
        return List.of(new AppConfigurationEntry(
            "OAuthBearerLoginModule", AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, options));
    }

    private static Map<String, String> options(String[] words, int from) throws Exception {
        Map<String, String> options = new TreeMap<>();
        for (int i = from; i < words.length; i += 2) options.put(text(words[i]), text(words[i + 1]));
        return options;
    }

    private static String text(String word) throws Exception {
        return new String(Lines.decode(word), "UTF-8");
    }

    private static String encode(String text) throws Exception {
        return Lines.encode(text.getBytes("UTF-8"));
    }
}

import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

public class Example {
    static String ask() throws IOException {
        var request = "GET /v1/token?waitSeconds=10 HTTP/1.0\r\nAccept: text/plain\r\n\r\n";
        try (var daemon = SocketChannel.open(UnixDomainSocketAddress.of("/run/kyc-tokend/http.sock"))) {
            daemon.write(ByteBuffer.wrap(request.getBytes()));
            var answer = new String(Channels.newInputStream(daemon).readAllBytes()).split("\r\n\r\n", 2);
            if (answer.length < 2) throw new EOFException("kyc-tokend gave no answer");
            if (!answer[0].startsWith("HTTP/1.1 200")) throw new IllegalStateException("kyc-tokend: " + answer[1]);
            return answer[1];
        }
    }

    static String accessToken() throws Exception {
        var answer = new FutureTask<>(() -> {
            try {
                return ask();
            } catch (IOException disconnected) {
                return ask();
            }
        });
        var asker = new Thread(answer);
        asker.setDaemon(true);
        asker.start();
        return answer.get(30, TimeUnit.SECONDS);
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println(accessToken().length() + " characters");
    }
}

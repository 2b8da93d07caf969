<?php
/**
 * The token of kyc-tokend for programs in PHP 8.1 or newer: this one file, and what PHP has by itself (streams, JSON).
 *
 *     require 'KycToken.php';
 *
 *     $token = KycToken::get();                 // $token['accessToken'], $token['expiresAt']
 *     $answer = KycToken::request('GET', 'https://api.example.com/some/path');
 *     echo $answer['status'], $answer['body'];
 *
 * If the API refuses the token, `request` follows the rule of kyc-tokend-protocol(7): it reports the token, waits
 * up to 10 s for another, and repeats the call once. With another HTTP client (Guzzle) call `refused` by
 * yourself. What goes wrong with kyc-tokend is a KycTokenException; a program that does not catch it ends with
 * that sentence. The socket is $KYC_TOKEND_HTTP_SOCKET, or /run/kyc-tokend/http.sock. What is remembered is this
 * process's: of php-fpm, the worker's while it serves one request.
 */
declare(strict_types=1);

final class KycTokenException extends RuntimeException
{
    /** @param string $reason One of kyc-tokend's codes (no-token-yet, expired, ...), or daemon-unreachable. */
    public function __construct(public readonly string $reason, string $message)
    {
        parent::__construct(preg_replace('/[^\P{C}]+/u', ' ', $message) ?? 'kyc-tokend gave no readable reason');
    }
}

set_exception_handler(static function (Throwable $error): void {
    if (!$error instanceof KycTokenException) {
        restore_exception_handler();
        throw $error;
    }
    error_log('kyc-tokend: ' . $error->getMessage());
    exit(75);
});

final class KycToken
{
    private const WAIT = 10;
    private const OWN = 300;
    private const MAX_RETRY = 86400;
    private const MAX_PLACES = 64;
    private const TEXTS = [
        'accessToken' => '/^[\x21-\x7e\x80-\xff]+$/D',
        'fingerprint' => '/^[0-9a-f]+$/D',
        'expiresAt' => '/./',
        'header' => "/^[\\w!#$%&'*+.^`|~-]+$/D",
        'prefix' => '/^[\x20-\x7e]*$/D',
        'baseUrl' => '#^https?://.#',
    ];
    /** @var array<string, array{bool, float}> By fingerprint: another token may come; until when that stands. */
    private static array $reports = [];
    /** @var array<string, float> By place: until when its refusals are its own. */
    private static array $own = [];

    /** The token's fields; waits up to $wait seconds for one. */
    public static function get(int $minValid = 0, ?string $notFingerprint = null, int $wait = self::WAIT): array
    {
        $query = ['minValidSeconds' => $minValid, 'waitSeconds' => $wait];
        if ($notFingerprint !== null) {
            $query['notFingerprint'] = $notFingerprint;
        }
        $token = self::ask('GET', '/v1/token?' . http_build_query($query));
        foreach (self::TEXTS as $field => $pattern) {
            self::expect(is_string($token[$field] ?? null) && preg_match($pattern, $token[$field]) === 1);
        }
        self::expect(is_array($token['refusedBy'] ?? null) && parse_url($token['baseUrl']) !== false);
        return $token;
    }

    /**
     * Sends a call with the token. Redirects are not followed.
     *
     * @param list<string> $headers Such as 'Content-Type: application/json'.
     * @return array{status: int, headers: list<string>, body: string}
     */
    public static function request(string $method, string $url, array $headers = [], string $body = '', int $timeout = 30): array
    {
        $token = self::get();
        $answer = self::send($token, $method, $url, $headers, $body, $timeout);
        if (!in_array($answer['status'], $token['refusedBy'], true)) {
            return $answer;
        }
        $other = self::refused($token, $method, $url, $answer['status']);
        if ($other === null) {
            return $answer;
        }
        $answer = self::send($other, $method, $url, $headers, $body, $timeout);
        if (in_array($answer['status'], $other['refusedBy'], true)) {
            self::refused($other, $method, $url, $answer['status'], true);
        }
        return $answer;
    }

    /**
     * The token with which to repeat the call, once; null: the refusal is the answer to it. Call it with a status
     * of $token['refusedBy'] and, with $repeated, if the second token is refused as well.
     */
    public static function refused(array $token, string $method, string $url, int $status = 401, bool $repeated = false): ?array
    {
        $parts = parse_url($url);
        $place = strtoupper($method) . ' ' . self::origin($url) . ($parts['path'] ?? '/');
        $now = hrtime(true) / 1e9;
        if ((self::$own[$place] ?? 0) > $now) {
            return null;
        }
        if ($repeated) {
            self::remember(self::$own, $place, $now + self::OWN, self::MAX_PLACES);
            return null;
        }
        $fingerprint = $token['fingerprint'];
        [$mayCome, $until] = self::$reports[$fingerprint] ?? [false, 0];
        if ($until <= $now) {
            [$mayCome, $until] = self::report($fingerprint, $place, $now);
            self::remember(self::$reports, $fingerprint, [$mayCome, $until], 16);
        }
        if (!$mayCome || ($status !== 401 && !in_array(strtoupper($method), ['GET', 'HEAD', 'OPTIONS'], true))) {
            return null;
        }
        try {
            $other = self::get(0, $fingerprint);
        } catch (KycTokenException) {
            return null;
        }
        return $other['fingerprint'] === $fingerprint ? null : $other;
    }

    /** @return array{bool, float} */
    private static function report(string $fingerprint, string $place, float $now): array
    {
        try {
            $answer = self::ask('POST', '/v1/token/reject', json_encode(['fingerprint' => $fingerprint]));
            $verdict = $answer['verdict'] ?? null;
            $seconds = $answer['retryAfterSeconds'] ?? 30;
            self::expect(is_string($verdict) && (is_int($seconds) || is_float($seconds)));
            self::expect($seconds >= 0 && $seconds <= self::MAX_RETRY);
        } catch (KycTokenException) {
            return [false, 0.0];
        }
        if ($verdict === 'unchanged') {
            self::remember(self::$own, $place, $now + self::OWN, self::MAX_PLACES);
        }
        $isSoon = $verdict === 'held' && $seconds <= self::WAIT;
        return [$isSoon || in_array($verdict, ['replaced', 'refreshing'], true), $now + $seconds];
    }

    private static function expect(bool $isRight): void
    {
        if (!$isRight) {
            throw new KycTokenException('bad-request', 'its answer is not that of kyc-tokend');
        }
    }

    private static function remember(array &$entries, string $key, mixed $value, int $most): void
    {
        unset($entries[$key]);
        $entries[$key] = $value;
        while (count($entries) > $most) {
            unset($entries[array_key_first($entries)]);
        }
    }

    private static function send(array $token, string $method, string $url, array $headers, string $body, int $timeout): array
    {
        if (self::origin($url) !== self::origin($token['baseUrl'])) {
            $message = 'the token is for ' . self::origin($token['baseUrl']) . ' and is not sent to ' . self::origin($url);
            throw new KycTokenException('bad-request', $message);
        }
        $headers[] = "{$token['header']}: {$token['prefix']}{$token['accessToken']}";
        $http = ['method' => $method, 'header' => $headers, 'content' => $body, 'timeout' => $timeout];
        $http += ['ignore_errors' => true, 'follow_location' => 0, 'protocol_version' => 1.1];
        $stream = @fopen($url, 'r', false, stream_context_create(['http' => $http]));
        if ($stream === false) {
            throw new RuntimeException('No answer of ' . self::origin($url));
        }
        $lines = stream_get_meta_data($stream)['wrapper_data'];
        $text = (string) stream_get_contents($stream);
        fclose($stream);
        return ['status' => (int) substr($lines[0], 9, 3), 'headers' => array_slice($lines, 1), 'body' => $text];
    }

    private static function origin(string $url): string
    {
        $parts = parse_url($url) ?: [];
        $scheme = strtolower($parts['scheme'] ?? '');
        return $scheme . '://' . strtolower($parts['host'] ?? '') . ':' . ($parts['port'] ?? ($scheme === 'https' ? 443 : 80));
    }

    /** The answer's fields. A daemon that restarts ends the connection before it answers: it is asked again. */
    private static function ask(string $method, string $target, string $body = ''): array
    {
        [$head, $text] = self::exchange($method, $target, $body) ?? self::exchange($method, $target, $body)
            ?? throw new KycTokenException('daemon-unreachable', 'the daemon ended the connection: `kyc-tokend status` says why');
        $fields = json_decode($text, true);
        self::expect(is_array($fields));
        if (preg_match('#^HTTP/1\.[01] 200 #', $head) !== 1) {
            [$code, $detail] = [$fields['code'] ?? 'bad-request', $fields['detail'] ?? 'it gave no reason'];
            self::expect(is_string($code) && is_string($detail));
            throw new KycTokenException($code, $detail);
        }
        return $fields;
    }

    /** @return array{string, string}|null Head and body; null: the connection ended before an answer. */
    private static function exchange(string $method, string $target, string $body): ?array
    {
        $path = getenv('KYC_TOKEND_HTTP_SOCKET') ?: '/run/kyc-tokend/http.sock';
        $daemon = @stream_socket_client("unix://$path", $code, $why, 5);
        if ($daemon === false) {
            throw new KycTokenException('daemon-unreachable', "no daemon answers at $path ($why): `kyc-tokend status` says why");
        }
        stream_set_timeout($daemon, self::WAIT + 20);
        $length = strlen($body);
        @fwrite($daemon, "$method $target HTTP/1.0\r\nHost: localhost\r\nContent-Length: $length\r\n\r\n$body");
        $answer = (string) stream_get_contents($daemon);
        $isLate = stream_get_meta_data($daemon)['timed_out'];
        fclose($daemon);
        if ($isLate) {
            throw new KycTokenException('daemon-unreachable', 'the daemon gave no answer within 30 s: `kyc-tokend status` says why');
        }
        $parts = explode("\r\n\r\n", $answer, 2);
        return count($parts) === 2 ? [$parts[0], $parts[1]] : null;
    }
}

<?php

/**
 * The site of the dictionary: pages, and what they ask for.
 *
 * VTmark (section 6.1): PHP, with a cache of 15 minutes "for all semi-static data", sessions in Memcache in front of the
 * users' database, and a datagram to the log for "each search made and the time it took to serve the request". What the
 * requests of a search are, the paper does not tell: README.md has ours. web.py gives the settings in the environment.
 */

declare(strict_types=1);

const SESSION_SECONDS = 24 * 60 * 60;
const PASSWORD_ROUNDS = 1000; // as database.py has them
const DAEMON_SECONDS = 20;

/** An answer other than 200. */
final class Refused extends Exception
{
}

function setting(string $name): string
{
    $value = getenv($name);
    if ($value === false || $value === '') {
        throw new RuntimeException("$name is not set");
    }
    return $value;
}

/** Give the rows of a query; values are its parameters, never a part of its text. */
function rows(string $query, array $values): array
{
    static $database = null;
    $database ??= new PDO(
        'mysql:host=' . setting('DATABASE_ADDRESS') . ';port=' . setting('DATABASE_PORT') . ';charset=utf8mb4',
        'dictionary',
        setting('DATABASE_PASSWORD'),
        [
            PDO::ATTR_PERSISTENT => true,
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
            PDO::ATTR_EMULATE_PREPARES => false,
            PDO::ATTR_TIMEOUT => 10,
        ],
    );
    $statement = $database->prepare($query);
    $statement->execute($values);
    return $statement->columnCount() ? $statement->fetchAll() : [];
}

/** Give a connection to one of the two memcached, which the process keeps. */
function memory(string $address): Memcached
{
    $memory = new Memcached($address);
    if (!$memory->getServerList()) {
        [$host, $port] = explode(':', $address, 2);
        $memory->addServer($host, (int) $port);
    }
    return $memory;
}

/** Give a value out of the cache, or make it and put it there for as long as semi-static data stay. */
function semi_static(string $kind, string $of, callable $make): mixed
{
    $cache = memory(setting('CACHE'));
    $key = $kind . ':' . hash('sha256', $of);
    $found = $cache->get($key);
    if ($cache->getResultCode() === Memcached::RES_SUCCESS) {
        return $found;
    }
    $made = $make();
    $cache->set($key, $made, (int) setting('CACHE_SECONDS'));
    return $made;
}

/** Ask one of the two daemons for words. */
function words(string $daemon, string $query): array
{
    $context = stream_context_create(['http' => ['timeout' => DAEMON_SECONDS]]);
    $answer = @file_get_contents("http://$daemon/?" . http_build_query(['q' => $query]), false, $context);
    if ($answer === false) {
        throw new RuntimeException("$daemon does not answer");
    }
    return json_decode($answer, true, 2, JSON_THROW_ON_ERROR);
}

/** Tell the log of a search. A datagram may be lost: nothing waits for it. */
function tell(string $word, float $seconds): void
{
    $log = @stream_socket_client('udp://' . setting('LOG'));
    if ($log !== false) {
        @fwrite($log, "search\t" . (int) round($seconds * 1e6) . "\t$word\n");
        fclose($log);
    }
}

/** Take a word out of the request: whatever can be printed on a line, as it is never more than a value. */
function asked(string $name): string
{
    $text = $_GET[$name] ?? null;
    if (!is_string($text) || !preg_match('/^[^\p{C}\p{Zl}\p{Zp}]{1,100}$/uD', $text)) {
        throw new Refused("give a word as $name", 400);
    }
    return strtolower($text);
}

function text_of(array $from, string $name): string
{
    return is_string($from[$name] ?? null) ? $from[$name] : '';
}

/** Begin a session of a user who gives name and password. */
function begin_session(): string
{
    $name = text_of($_POST, 'name');
    $user = rows('SELECT salt, hashed FROM users.users WHERE name = ?', [$name])[0] ?? ['salt' => '', 'hashed' => ''];
    $hashed = hash_pbkdf2('sha256', text_of($_POST, 'password'), $user['salt'], PASSWORD_ROUNDS);
    if (!hash_equals($user['hashed'], $hashed)) {
        throw new Refused('there is no such user, or the password is another', 403);
    }
    $token = bin2hex(random_bytes(16));
    rows('INSERT INTO users.sessions (token, name) VALUES (?, ?)', [$token, $name]);
    memory(setting('SESSIONS'))->set($token, $name, SESSION_SECONDS);
    setcookie('session', $token, ['path' => '/', 'httponly' => true, 'samesite' => 'Strict']);
    return $name;
}

/** Give the name of the session's user: out of the session cache, or out of the database. */
function user(): string
{
    $token = text_of($_COOKIE, 'session');
    if (!preg_match('/^[0-9a-f]{32}$/D', $token)) {
        throw new Refused('there is no session', 403);
    }
    $sessions = memory(setting('SESSIONS'));
    $name = $sessions->get($token);
    if ($sessions->getResultCode() === Memcached::RES_SUCCESS) {
        return $name;
    }
    $name = rows('SELECT name FROM users.sessions WHERE token = ?', [$token])[0]['name'] ?? null;
    if ($name === null) {
        throw new Refused('there is no such session', 403);
    }
    $sessions->set($token, $name, SESSION_SECONDS);
    return $name;
}

function page(string $name): string
{
    $frame = semi_static('page', '', function (): string {
        [$counted] = rows('SELECT COUNT(*) AS senses FROM dictionary.senses', []);
        return '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Dictionary</title>'
            . '<link rel="stylesheet" href="/style.css"><script defer src="/dictionary.js"></script></head><body>'
            . '<h1>Dictionary</h1><p>{user}</p><form id="search"><input id="word" list="words" autofocus>'
            . '<datalist id="words"></datalist></form><main id="entries"></main><aside id="popular"></aside>'
            . "<footer>$counted[senses] senses of WordNet</footer></body></html>\n";
    });
    return str_replace('{user}', htmlspecialchars($name), $frame);
}

function suggested(): array
{
    $word = asked('q');
    return semi_static('suggest', $word, fn (): array => words(setting('FUZZY'), $word));
}

function searched(): array
{
    $began = microtime(true);
    $word = asked('q');
    $found = semi_static('search', $word, fn (): array => words(setting('SEARCH'), $word));
    tell($word, microtime(true) - $began);
    return $found;
}

function entry(): array
{
    $word = asked('word');
    $query = 'SELECT kind, gloss FROM dictionary.senses WHERE word = ? ORDER BY id';
    $senses = semi_static('entry', $word, fn (): array => rows($query, [$word]));
    if (!$senses) {
        throw new Refused('there is no such word', 404);
    }
    return ['word' => $word, 'senses' => $senses];
}

function of_user(string $name): array
{
    $query = 'SELECT name, email, company, licenses FROM users.users WHERE name = ?';
    return semi_static('user', $name, fn (): array => rows($query, [$name])[0]);
}

function popular(): array
{
    $query = 'SELECT word, COUNT(*) AS searches FROM log.searches GROUP BY word ORDER BY searches DESC, word LIMIT 10';
    return semi_static('popular', '', fn (): array => rows($query, []));
}

/** Answer a request: a page is a text, all else is data. */
function answer(string $method, string $path): string|array
{
    if ($path === '/health') {
        return ['senses' => rows('SELECT COUNT(*) AS senses FROM dictionary.senses', [])[0]['senses']];
    }
    if ($path === '/') {
        return page($method === 'POST' ? begin_session() : user());
    }
    $name = user();
    return match ($path) {
        '/suggest' => suggested(),
        '/search' => searched(),
        '/entry' => entry(),
        '/user' => of_user($name),
        '/popular' => popular(),
        default => throw new Refused('there is no such page', 404),
    };
}

try {
    $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
    $answer = answer($_SERVER['REQUEST_METHOD'], is_string($path) ? $path : '');
} catch (Refused $refused) {
    http_response_code($refused->getCode());
    $answer = ['error' => $refused->getMessage()];
} catch (Throwable $error) { // the database, a cache or a daemon: who asked learns that it is not his fault
    error_log((string) $error);
    http_response_code(503);
    $answer = ['error' => 'the dictionary does not answer'];
}
if (is_array($answer)) {
    header('Content-Type: application/json');
    $answer = json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR);
}
echo $answer;

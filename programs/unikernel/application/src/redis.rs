//! The Redis protocol, version 2, the part that benchmark clients use.

use alloc::vec::Vec;
use core::str;

use crate::store::Store;
use crate::{LONGEST_REQUEST, Step};

/// Limit of words; no supported command has more.
const MOST_WORDS: usize = 16;

pub const TOO_LARGE: &[u8] = b"-ERR Protocol error: too big request\r\n";
const UNKNOWN: &[u8] = b"-ERR unknown command\r\n";
const WRONG_NUMBER: &[u8] = b"-ERR wrong number of arguments\r\n";
const FULL: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// Result of parsing the start of an input.
enum Parsed {
    /// A request of this length.
    Request(usize),
    Partial,
    Broken(&'static [u8]),
}

/// The words of one request.
struct Words<'a> {
    words: [&'a [u8]; MOST_WORDS],
    count: usize,
}

impl<'a> Words<'a> {
    const fn new() -> Self {
        Self { words: [b""; MOST_WORDS], count: 0 }
    }

    fn push(&mut self, word: &'a [u8]) -> Option<()> {
        *self.words.get_mut(self.count)? = word;
        self.count += 1;
        Some(())
    }

    fn as_slice(&self) -> &[&'a [u8]] {
        &self.words[..self.count]
    }
}

/// Reply to the first request of the input.
pub fn answer(store: &mut Store, input: &[u8], output: &mut Vec<u8>) -> Step {
    let mut words = Words::new();
    match parse(input, &mut words) {
        Parsed::Partial => Step::Partial,
        Parsed::Broken(reason) => {
            output.extend_from_slice(reason);
            Step::Last
        }
        Parsed::Request(length) => {
            if execute(store, words.as_slice(), output) {
                Step::Last
            } else {
                Step::Answered(length)
            }
        }
    }
}

/// Execute a command; return whether it was the connection's last.
fn execute(store: &mut Store, words: &[&[u8]], output: &mut Vec<u8>) -> bool {
    let Some((command, arguments)) = words.split_first() else {
        return false; // an empty line, which Redis ignores as well
    };
    let is = |name: &[u8]| command.eq_ignore_ascii_case(name);
    match arguments {
        [] if is(b"PING") => output.extend_from_slice(b"+PONG\r\n"),
        [message] if is(b"PING") => bulk(message, output),
        [key] if is(b"GET") => match store.get(key) {
            Some(value) => bulk(value, output),
            None => output.extend_from_slice(b"$-1\r\n"),
        },
        [key, value] if is(b"SET") => output.extend_from_slice(match store.set(key, value) {
            Ok(()) => b"+OK\r\n",
            Err(_) => FULL,
        }),
        [what, name] if is(b"CONFIG") && what.eq_ignore_ascii_case(b"GET") => configuration(name, output),
        _ if is(b"COMMAND") => output.extend_from_slice(b"*0\r\n"), // clients do without the descriptions
        [] if is(b"QUIT") => {
            output.extend_from_slice(b"+OK\r\n");
            return true;
        }
        _ if is(b"PING") || is(b"GET") || is(b"SET") || is(b"CONFIG") => output.extend_from_slice(WRONG_NUMBER),
        _ => output.extend_from_slice(UNKNOWN),
    }
    false
}

/// Reply with the settings that redis-benchmark prints; nothing is saved here.
fn configuration(name: &[u8], output: &mut Vec<u8>) {
    let value: &[u8] = match name {
        b"save" => b"",
        b"appendonly" => b"no",
        _ => return output.extend_from_slice(b"*0\r\n"),
    };
    output.extend_from_slice(b"*2\r\n");
    bulk(name, output);
    bulk(value, output);
}

fn bulk(bytes: &[u8], output: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = bytes.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    output.push(b'$');
    output.extend_from_slice(&digits[start..]);
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

fn parse<'a>(input: &'a [u8], words: &mut Words<'a>) -> Parsed {
    let Some((line, mut at)) = line(input) else {
        return Parsed::Partial;
    };
    let Some(count) = line.strip_prefix(b"*") else {
        let spoken = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return match spoken.map(|word| words.push(word)).collect::<Option<()>>() {
            Some(()) => Parsed::Request(at),
            None => Parsed::Broken(b"-ERR Protocol error: too many words\r\n"),
        };
    };
    let Some(count) = number(count).filter(|count| *count <= MOST_WORDS as i64) else {
        return Parsed::Broken(b"-ERR Protocol error: invalid multibulk length\r\n");
    };
    for _ in 0..count {
        match word(&input[at..]) {
            Ok(Some((word, length))) => {
                let _ = words.push(word); // the count was checked
                at += length;
            }
            Ok(None) => return Parsed::Partial,
            Err(reason) => return Parsed::Broken(reason),
        }
    }
    Parsed::Request(at)
}

/// Parse one counted word: return it and its length in the input, or nothing if it is incomplete.
fn word(input: &[u8]) -> Result<Option<(&[u8], usize)>, &'static [u8]> {
    if input.first().is_some_and(|first| *first != b'$') {
        return Err(b"-ERR Protocol error: expected '$'\r\n");
    }
    let Some((line, start)) = line(input) else {
        return Ok(None);
    };
    let length = number(&line[1..]).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length <= LONGEST_REQUEST) else {
        return Err(b"-ERR Protocol error: invalid bulk length\r\n");
    };
    let end = start + length;
    match input.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((&input[start..end], end + 2))),
        Some(_) => Err(b"-ERR Protocol error: expected the end of a word\r\n"),
    }
}

/// Parse one line: return it without its end, and its length in the input.
fn line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn number(digits: &[u8]) -> Option<i64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(input: &[u8]) -> (Step, Vec<u8>) {
        let mut output = Vec::new();
        let mut store = Store::default();
        store.set(b"key", b"value").unwrap();
        let step = answer(&mut store, input, &mut output);
        (step, output)
    }

    #[test]
    fn each_command_has_its_answer() {
        for (request, expected) in [
            (b"PING\r\n".as_slice(), b"+PONG\r\n".as_slice()),
            (b"  ping \n", b"+PONG\r\n"),
            (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
            (b"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n", b"$2\r\nhi\r\n"),
            (b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", b"$5\r\nvalue\r\n"),
            (b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n", b"$-1\r\n"),
            (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\x00\xff\r\n", b"+OK\r\n"),
            (b"CONFIG GET save\r\n", b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            (b"config get appendonly\r\n", b"*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
            (b"CONFIG GET other\r\n", b"*0\r\n"),
            (b"COMMAND DOCS\r\n", b"*0\r\n"),
            (b"\r\n", b""),
            (b"*0\r\n", b""),
            (b"*-1\r\n", b""),
            (b"FLUSHALL\r\n", UNKNOWN),
            (b"GET\r\n", WRONG_NUMBER),
            (b"SET key value EX 1\r\n", WRONG_NUMBER),
        ] {
            assert_eq!(answered(request), (Step::Answered(request.len()), expected.to_vec()));
        }
        assert_eq!(answered(b"QUIT\r\n"), (Step::Last, b"+OK\r\n".to_vec()));
    }

    #[test]
    fn only_whole_requests_are_answered() {
        let request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nval\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(answered(&request[..length]), (Step::Partial, Vec::new()));
        }
    }

    #[test]
    fn a_broken_request_ends_the_connection() {
        for request in [
            b"*x\r\n".as_slice(),
            b"*17\r\n",
            b"*99999999999999999999\r\n",
            b"*1\r\n+PING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$99999\r\n",
            b"*1\r\n$18446744073709551615\r\n",
            b"*1\r\n$\xff\r\n",
            b"*1\r\n$4\r\nPINGPONG\r\n",
            b"a b c d e f g h i j k l m n o p q\r\n",
        ] {
            let (step, output) = answered(request);
            assert_eq!(step, Step::Last);
            assert!(output.starts_with(b"-ERR Protocol error: ") && output.ends_with(b"\r\n"));
        }
    }
}

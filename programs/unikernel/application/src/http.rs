//! HTTP/1.0 and 1.1, the part that is needed to serve one page.

use alloc::vec::Vec;

use crate::Step;

/// Length of the page: the same as that of the one that the workload `nginx` serves.
const PAGE_LENGTH: usize = 1024;
const PAGE: [u8; PAGE_LENGTH] = {
    let mut page = [0; PAGE_LENGTH];
    let mut at = 0;
    while at < PAGE_LENGTH {
        page[at] = b"tare\n"[at % 5];
        at += 1;
    }
    page
};
const MOST_HEADERS: usize = 100;

pub const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const NO_BODY_PLEASE: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const ONLY_GET: &[u8] = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\n";
const FOUND: &[u8] = b"HTTP/1.1 200 OK\r\nServer: micro\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n";
const KEEP: &[u8] = b"Connection: keep-alive\r\n\r\n";
const CLOSE: &[u8] = b"Connection: close\r\n\r\n";

/// The relevant parts of a request.
struct Request<'a> {
    method: &'a [u8],
    keep_alive: bool,
    has_body: bool,
}

/// Reply to the first request of the input.
pub fn answer(input: &[u8], output: &mut Vec<u8>) -> Step {
    let Some(length) = input.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
        return Step::Partial;
    };
    let Some(request) = parse(&input[..length - 4]) else {
        output.extend_from_slice(BAD_REQUEST);
        return Step::Last;
    };
    if request.has_body {
        output.extend_from_slice(NO_BODY_PLEASE);
        return Step::Last;
    }
    let known = matches!(request.method, b"GET" | b"HEAD");
    output.extend_from_slice(if known { FOUND } else { ONLY_GET });
    output.extend_from_slice(if request.keep_alive { KEEP } else { CLOSE });
    if request.method == b"GET" {
        output.extend_from_slice(&PAGE);
    }
    if request.keep_alive { Step::Answered(length) } else { Step::Last }
}

fn parse(head: &[u8]) -> Option<Request<'_>> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_token = !method.is_empty() && method.iter().all(u8::is_ascii_uppercase);
    if !is_token || target.is_empty() || words.next().is_some() || !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        return None;
    }
    let mut request = Request { method, keep_alive: version == b"HTTP/1.1", has_body: false };
    for (number, line) in lines.enumerate() {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if number >= MOST_HEADERS {
            return None;
        }
        if name.eq_ignore_ascii_case(b"connection") {
            if value.eq_ignore_ascii_case(b"close") {
                request.keep_alive = false;
            } else if value.eq_ignore_ascii_case(b"keep-alive") {
                request.keep_alive = true;
            }
        }
        request.has_body |= name.eq_ignore_ascii_case(b"transfer-encoding")
            || (name.eq_ignore_ascii_case(b"content-length") && value != b"0");
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn answered(input: &[u8]) -> (Step, String) {
        let mut output = Vec::new();
        let step = answer(input, &mut output);
        (step, String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_get_is_answered_with_the_page() {
        let request = b"GET /file HTTP/1.1\r\nHost: micro\r\n\r\n";
        let (step, output) = answered(request);
        assert_eq!(step, Step::Answered(request.len()));
        let (head, page) = output.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(head.ends_with("Content-Length: 1024\r\nConnection: keep-alive"));
        assert_eq!(page.len(), PAGE_LENGTH);
        assert!(page.starts_with("tare\ntare\n") && page.ends_with("\ntare"));
    }

    #[test]
    fn the_connection_is_closed_when_the_client_wants_that() {
        for request in [
            b"GET / HTTP/1.1\r\nconnection:  CLOSE \r\n\r\n".as_slice(),
            b"GET / HTTP/1.0\r\n\r\n",
            b"HEAD / HTTP/1.0\r\nHost: x\r\n\r\n",
        ] {
            let (step, output) = answered(request);
            assert_eq!(step, Step::Last);
            assert!(output.contains("\r\nConnection: close\r\n\r\n"));
        }
        let kept = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(answered(kept).0, Step::Answered(kept.len()));
    }

    #[test]
    fn only_whole_requests_are_answered() {
        let request = b"GET /file HTTP/1.1\r\nHost: micro\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(answered(&request[..length]), (Step::Partial, String::new()));
        }
    }

    #[test]
    fn what_cannot_be_answered_is_refused() {
        for (request, status) in [
            (b"GET /\r\n\r\n".as_slice(), "400"),
            (b"\r\n\r\n", "400"),
            (b"GET / HTTP/2.0\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", "400"),
            (b"\xff\x00\xfe / HTTP/1.1\r\n\r\n", "400"),
            (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "413"),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "413"),
        ] {
            let (step, output) = answered(request);
            assert_eq!(step, Step::Last);
            assert!(output.starts_with(&alloc::format!("HTTP/1.1 {status} ")), "{output}");
        }
        assert!(answered(b"DELETE / HTTP/1.1\r\n\r\n").1.starts_with("HTTP/1.1 405 "));
    }
}

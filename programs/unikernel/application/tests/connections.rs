//! Connections as their clients see them, however the bytes arrive.

use application::{Application, Connection, Service};

const REDIS: &[u8] =
    b"PING\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nnothing\r\n";
const REDIS_ANSWERS: &[u8] = b"+PONG\r\n+OK\r\n$5\r\nvalue\r\n-ERR unknown command\r\n";

/// Feed everything, sending each time at most `sending` bytes, as far as the connection takes it.
fn conversation(service: Service, input: &[u8], pieces: usize, sending: usize) -> (Vec<u8>, bool) {
    let mut application = Application::new(7);
    let mut connection = Connection::new(&application, service);
    let (mut answers, mut rest) = (Vec::new(), input);
    loop {
        let piece = &rest[..pieces.min(rest.len())];
        let room = connection.room();
        let taken = connection.feed(&mut application, piece);
        assert_eq!(taken, piece.len().min(room));
        rest = &rest[taken..];
        let length = sending.min(connection.output().len());
        answers.extend_from_slice(&connection.output()[..length]);
        connection.sent(&mut application, length);
        if taken == 0 && length == 0 {
            return (answers, connection.is_finished());
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_in_whatever_pieces_they_arrive() {
    for pieces in 1..=REDIS.len() {
        assert_eq!(conversation(Service::Redis, REDIS, pieces, 5), (REDIS_ANSWERS.to_vec(), false));
    }
}

#[test]
fn deep_pipelines_neither_lose_nor_hoard_answers() {
    let depth = 20_000;
    let (answers, finished) = conversation(Service::Redis, &REDIS.repeat(depth), 4096, 1000);
    assert_eq!((answers.len(), finished), (REDIS_ANSWERS.len() * depth, false));
    assert!(answers.chunks(REDIS_ANSWERS.len()).all(|each| each == REDIS_ANSWERS));
    let request = b"GET /file HTTP/1.1\r\n\r\n";
    let one = conversation(Service::Http, request, 1, 1).0;
    assert_eq!(conversation(Service::Http, &request.repeat(500), 9999, 777).0, one.repeat(500));
}

#[test]
fn nothing_is_taken_while_the_client_does_not_read() {
    let mut application = Application::new(7);
    let mut connection = Connection::new(&application, Service::Http);
    let taken = (0..1000).map(|_| connection.feed(&mut application, b"GET / HTTP/1.1\r\n\r\n")).sum::<usize>();
    assert!(taken < 40 * 1024 && connection.output().len() < 40 * 1024);
}

#[test]
fn readiness_is_one_line_whatever_the_client_says() {
    for input in [b"".as_slice(), b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000]] {
        assert_eq!(conversation(Service::Ready, input, 1000, 2), (b"tare 7\n".to_vec(), true));
    }
}

#[test]
fn a_request_without_an_end_is_refused() {
    let (answers, finished) = conversation(Service::Http, &[b'x'; 100_000], 1460, 100);
    assert!(answers.starts_with(b"HTTP/1.1 431 ") && finished);
    let (answers, finished) = conversation(Service::Redis, &[b'x'; 100_000], 1460, 100);
    assert_eq!((answers, finished), (b"-ERR Protocol error: too big request\r\n".to_vec(), true));
    let large = b"*3\r\n$3\r\nSET\r\n$16000\r\n".iter().chain(&[b'y'; 100_000]).copied().collect::<Vec<_>>();
    assert!(conversation(Service::Redis, &large, 1460, 100).1);
}

#[test]
fn garbage_never_harms_the_server() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let alphabet = b"*$-0123456789\r\n \x00\xffGETSPINGHTTP/1.:";
    for _ in 0..20_000 {
        let length = random() % 80;
        let garbage: Vec<u8> = (0..length).map(|_| alphabet[(random() % alphabet.len() as u64) as usize]).collect();
        for service in Service::ALL {
            conversation(service, &garbage, 1 + (random() % 9) as usize, 3);
        }
    }
}

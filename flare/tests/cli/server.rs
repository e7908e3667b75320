//! A server that answers as it is told, and remembers what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    /// Method and target: `GET /status`.
    pub line: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Answers one request per answer, each on its own connection, and then ends.
pub struct Server {
    pub url: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Server {
    /// A server with these answers: head lines (`200 OK`, and headers after it), and body.
    pub fn answering(answers: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<_> = answers.iter().map(|(head, body)| (head.to_string(), body.to_string())).collect();
        let answer = move |(head, body): (String, String)| {
            let (stream, _) = listener.accept().unwrap();
            let request = read(&stream);
            let length = body.len();
            write!(&stream, "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
            request
        };
        let thread = std::thread::spawn(move || answers.into_iter().map(answer).collect());
        Self { url, thread }
    }

    /// What it was asked, once it has given all of its answers.
    pub fn requests(self) -> Vec<Request> {
        self.thread.join().unwrap()
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let line = lines.remove(0).trim_end_matches(" HTTP/1.1").to_owned();
    let header = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<_> = lines.iter().filter_map(header).collect();
    let mut request = Request { line, headers, body: String::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    reader.take(length).read_to_string(&mut request.body).unwrap();
    request
}

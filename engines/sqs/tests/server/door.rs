//! A door before the emulator that says no to some requests, as the real service does and the emulator never will: no
//! rights, too many requests, broken for a moment.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Clone)]
struct Rule {
    action: &'static str,
    status: u16,
    code: &'static str,
    times: usize,
}

#[derive(Clone)]
pub struct Door {
    pub address: SocketAddr,
    rule: Arc<Mutex<Option<Rule>>>,
    actions: Arc<Mutex<Vec<String>>>,
    /// The key and the region of the last request.
    caller: Arc<Mutex<String>>,
}

impl Door {
    /// Opens the door to a host and a port.
    pub async fn open(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Self { address, rule: Arc::default(), actions: Arc::default(), caller: Arc::default() };
        let shared = door.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (door, target) = (shared.clone(), target.clone());
                tokio::spawn(async move { door.serve(client, &target).await });
            }
        });
        door
    }

    /// From now on, the next requests for this action are answered so.
    pub fn refuse(&self, action: &'static str, status: u16, code: &'static str, times: usize) {
        *self.rule.lock() = Some(Rule { action, status, code, times });
    }

    /// How often an action was asked for, refused or not.
    pub fn count(&self, action: &str) -> usize {
        self.actions.lock().iter().filter(|asked| *asked == action).count()
    }

    /// Who has asked last: the key, the day, the region.
    pub fn caller(&self) -> String {
        self.caller.lock().clone()
    }

    fn answer(&self, head: &str) -> Option<String> {
        let credential = head.split("Credential=").nth(1).and_then(|rest| rest.split(',').next());
        *self.caller.lock() = credential.unwrap_or_default().to_owned();
        let target = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("x-amz-target").then(|| value.trim().to_owned())
        });
        let action = target?.rsplit('.').next()?.to_owned();
        self.actions.lock().push(action.clone());
        let mut rule = self.rule.lock();
        let rule = rule.as_mut().filter(|rule| rule.action == action && rule.times > 0)?;
        rule.times -= 1;
        let body = format!(r#"{{"__type":"com.amazonaws.sqs#{}","message":"said the door"}}"#, rule.code);
        let (status, length) = (rule.status, body.len());
        Some(format!(
            "HTTP/1.1 {status} No\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    }

    async fn serve(&self, mut client: TcpStream, target: &str) {
        while let Some((head, bytes)) = read(&mut client).await {
            let answer = match self.answer(&head) {
                Some(answer) => answer.into_bytes(),
                None => {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    server.write_all(&bytes).await.unwrap();
                    match read(&mut server).await {
                        Some((_, answer)) => answer,
                        None => return,
                    }
                }
            };
            if client.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

/// One request or answer, with a body of the length that it names.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 64 << 10]);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some((head, bytes));
            }
        }
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => bytes.extend_from_slice(&buffer[..length]),
            _ => return None,
        }
    }
}

//! The protocol of NATS, spoken without a client: every word the server says to a user is seen, in order, none is lost
//! in a queue of events, and nothing keeps a user from saying what no client would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

/// The longest a server may take for one word, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

/// One user's connection.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    name: String,
    /// Messages that came and nobody has looked at.
    pub(crate) came: Vec<Message>,
    /// Subscriptions that were made.
    subscriptions: u32,
}

/// A message as it came.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    pub(crate) body: String,
}

/// One word of the server.
enum Word {
    Pong,
    Error(String),
    Message(Message),
    Closed,
}

impl Wire {
    /// Connects. Fails with the server's refusal if it does not know the user, or with the reason why there is no connection.
    pub(crate) fn login(port: u16, user: &str, password: &str) -> Result<Self, String> {
        let writer =
            TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("no connection: {error}"))?;
        writer.set_read_timeout(Some(PATIENCE)).unwrap();
        writer.set_nodelay(true).unwrap();
        let mut wire = Self {
            reader: BufReader::new(writer.try_clone().unwrap()),
            writer,
            name: sinew_protocol::Token::of(user).to_string(),
            came: Vec::new(),
            subscriptions: 0,
        };
        let connect = json!({
            "user": user, "pass": password, "name": "test", "lang": "test", "version": "1", "protocol": 1,
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
        });
        wire.say(&format!("CONNECT {connect}\r\n"));
        match wire.settle().as_slice() {
            [] => Ok(wire),
            [error, ..] => Err(error.clone()),
        }
    }

    fn say(&mut self, words: &str) {
        self.writer.write_all(words.as_bytes()).expect("the server reads");
    }

    /// Returns the server's complaints about all that was sent so far.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        // A server that has closed the connection says why before that.
        let _ = self.writer.write_all(b"PING\r\n");
        let mut complaints = Vec::new();
        loop {
            match self.word() {
                Word::Pong => return complaints,
                Word::Error(error) => complaints.push(error),
                Word::Message(message) => self.came.push(message),
                Word::Closed => {
                    complaints.push("closed".to_owned());
                    return complaints;
                }
            }
        }
    }

    /// Waits until the server has closed the connection.
    pub(crate) fn closed(&mut self) {
        while !matches!(self.word(), Word::Closed) {}
    }

    fn word(&mut self) -> Word {
        loop {
            let mut line = String::new();
            match self.reader.read_line(&mut line) {
                Ok(0) => return Word::Closed,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Word::Closed,
                Err(error) => panic!("{}: the server says nothing for {PATIENCE:?}: {error}", self.name),
            }
            let mut tokens = line.split_ascii_whitespace();
            match tokens.next().unwrap_or_default() {
                "PONG" => return Word::Pong,
                "PING" => self.say("PONG\r\n"),
                "-ERR" => return Word::Error(line.trim()["-ERR ".len()..].trim_matches('\'').to_owned()),
                kind @ ("MSG" | "HMSG") => {
                    let tokens: Vec<&str> = tokens.collect();
                    return Word::Message(self.message(kind == "HMSG", &tokens));
                }
                _ => {} // INFO, +OK
            }
        }
    }

    fn message(&mut self, headed: bool, tokens: &[&str]) -> Message {
        let sizes = if headed { 2 } else { 1 };
        let size = |back: usize| tokens[tokens.len() - back].parse::<usize>().expect("a size");
        let (head, whole) = (if headed { size(2) } else { 0 }, size(1));
        let mut bytes = vec![0; whole + 2];
        self.reader.read_exact(&mut bytes).expect("a message comes whole");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Message {
            subject: tokens[0].to_owned(),
            reply: (tokens.len() == 3 + sizes).then(|| tokens[2].to_owned()),
            body: text(&bytes[head..whole]),
        }
    }

    /// Publishes, and does not wait for what the server says.
    pub(crate) fn publish(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: &[(&str, &str)],
        body: &str,
    ) {
        let reply = reply.map(|reply| format!("{reply} ")).unwrap_or_default();
        let words = if headers.is_empty() {
            format!("PUB {subject} {reply}{}\r\n{body}\r\n", body.len())
        } else {
            let line = |lines: String, (name, value): &(&str, &str)| lines + name + ": " + value + "\r\n";
            let lines = headers.iter().fold(String::new(), line);
            let head = format!("NATS/1.0\r\n{lines}\r\n");
            let (head_len, whole) = (head.len(), head.len() + body.len());
            format!("HPUB {subject} {reply}{head_len} {whole}\r\n{head}{body}\r\n")
        };
        self.say(&words);
    }

    /// Whether the server takes a message to this subject.
    pub(crate) fn may_publish(&mut self, subject: &str) -> bool {
        self.publish(subject, None, &[], "x");
        self.judged(subject)
    }

    /// Whether the server takes a subscription to this subject, in this queue group or in none. It ends at once.
    pub(crate) fn may_subscribe(&mut self, subject: &str, queue: Option<&str>) -> bool {
        let id = self.subscribe(subject, queue);
        let may = self.judged(subject);
        self.say(&format!("UNSUB {id}\r\n"));
        may
    }

    /// Subscribes for as long as it is connected.
    pub(crate) fn subscribe(&mut self, subject: &str, queue: Option<&str>) -> u32 {
        self.subscriptions += 1;
        let (id, queue) = (self.subscriptions, queue.unwrap_or_default());
        self.say(&format!("SUB {subject} {queue} {id}\r\n"));
        id
    }

    #[track_caller]
    fn judged(&mut self, subject: &str) -> bool {
        match self.settle().as_slice() {
            [] => true,
            [word] if word.starts_with("Permissions Violation") && word.contains(subject) => false,
            other => panic!("{} {subject}: the server says {other:?}", self.name),
        }
    }

    /// Waits for a message.
    #[track_caller]
    pub(crate) fn hear(&mut self, what: &str) -> Message {
        while self.came.is_empty() {
            match self.word() {
                Word::Message(message) => self.came.push(message),
                Word::Closed => panic!("{}: the server closed while {what} was waited for", self.name),
                Word::Pong | Word::Error(_) => {}
            }
        }
        self.came.remove(0)
    }

    /// Asks, and waits for the answer; the server's word if it may not be asked.
    pub(crate) fn request(&mut self, subject: &str, body: &str) -> Result<Message, String> {
        self.request_with(subject, &[], body)
    }

    /// The same with headers.
    pub(crate) fn request_with(
        &mut self,
        subject: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Message, String> {
        self.subscriptions += 1;
        let (id, inbox) = (self.subscriptions, format!("_INBOX_{}.{}", self.name, self.subscriptions));
        self.say(&format!("SUB {inbox} {id}\r\nUNSUB {id} 1\r\n"));
        self.publish(subject, Some(&inbox), headers, body);
        loop {
            match self.word() {
                Word::Message(message) if message.subject == inbox => return Ok(message),
                Word::Message(message) if message.reply.is_some() => return Ok(message),
                Word::Message(message) => self.came.push(message),
                Word::Error(error) => return Err(error),
                Word::Closed => return Err("closed".to_owned()),
                Word::Pong => {}
            }
        }
    }
}

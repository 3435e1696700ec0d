//! Which frame a worker may send when, and how much of everything: the strict state machine over its frames.
//!
//! Invariant: every frame that comes out of [`Conversation::accept`] is legal at its place and within budget. It must
//! never act on a frame: it only says yes, or why not; after a no the worker is killed and nothing more is read.

use crate::protocol::{BridgeOp, FromWorker, PROTOCOL_VERSION};

/// How far the worker has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing has come yet.
    Connecting,
    /// It has greeted and confines itself.
    Confining,
    /// It runs the program.
    Running,
    /// The program has settled, calls are in flight, none may start.
    Settling,
    /// It has said its last word.
    Finished,
}

/// How a worker broke the protocol. The worker is at fault and not usable afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it speaks version {version} of the protocol instead of {PROTOCOL_VERSION}")]
    Version { version: u32 },
    #[error("it sent {frame} where that is not allowed")]
    OutOfOrder { frame: &'static str },
    #[error("it numbered a call {call} instead of {expected}")]
    CallNumber { call: u32, expected: u32 },
    #[error("it made more than {max_calls} calls")]
    TooManyCalls { max_calls: u32 },
    #[error("it logged more than {max_log_bytes} bytes")]
    TooMuchLog { max_log_bytes: usize },
    #[error("it named a tool where none is called")]
    StrayTool,
    #[error("{0}")]
    Frame(#[from] crate::protocol::FrameError),
    #[error("its value is not JSON within the announced limits")]
    Value,
}

/// What one worker has said so far, and what it may still say.
#[derive(Debug)]
pub(crate) struct Conversation {
    stage: Stage,
    max_calls: u32,
    next_call: u32,
    max_log_bytes: usize,
    log_bytes: usize,
    /// A barrier has been sent and not been answered.
    barrier: bool,
}

impl Conversation {
    /// A conversation with a worker that has said nothing; `max_log_bytes` is what the worker was told.
    pub(crate) fn new(max_calls: u32, max_log_bytes: usize) -> Self {
        Self { stage: Stage::Connecting, max_calls, next_call: 0, max_log_bytes, log_bytes: 0, barrier: false }
    }

    /// How far the worker has got.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The host sends a barrier; there must be none unanswered.
    pub(crate) fn barrier_sent(&mut self) {
        debug_assert!(!self.barrier, "one barrier at a time");
        self.barrier = true;
    }

    /// Whether a barrier is unanswered.
    pub(crate) fn barrier_pending(&self) -> bool {
        self.barrier
    }

    /// Checks the next frame and moves on.
    pub(crate) fn accept(&mut self, frame: &FromWorker) -> Result<(), Violation> {
        let working = matches!(self.stage, Stage::Running | Stage::Settling);
        match frame {
            FromWorker::Hello { version } if self.stage == Stage::Connecting => {
                if *version != PROTOCOL_VERSION {
                    return Err(Violation::Version { version: *version });
                }
                self.stage = Stage::Confining;
            }
            FromWorker::Ready if self.stage == Stage::Confining => self.stage = Stage::Running,
            FromWorker::Call(call) if self.stage == Stage::Running => {
                if self.next_call == self.max_calls {
                    return Err(Violation::TooManyCalls { max_calls: self.max_calls });
                }
                if call.call != self.next_call {
                    return Err(Violation::CallNumber { call: call.call, expected: self.next_call });
                }
                if call.op != BridgeOp::Call && !call.tool.is_empty() {
                    return Err(Violation::StrayTool);
                }
                self.next_call += 1;
            }
            FromWorker::Log(line) if working => {
                self.log_bytes = self.log_bytes.saturating_add(line.cost_bytes());
                if self.log_bytes > self.max_log_bytes {
                    return Err(Violation::TooMuchLog { max_log_bytes: self.max_log_bytes });
                }
            }
            FromWorker::Barrier if working && self.barrier => self.barrier = false,
            FromWorker::Settled if self.stage == Stage::Running => self.stage = Stage::Settling,
            FromWorker::Done(_) if working => self.stage = Stage::Finished,
            other => return Err(Violation::OutOfOrder { frame: name_of(other) }),
        }
        Ok(())
    }
}

fn name_of(frame: &FromWorker) -> &'static str {
    match frame {
        FromWorker::Hello { .. } => "a greeting",
        FromWorker::Ready => "its readiness",
        FromWorker::Call(_) => "a call",
        FromWorker::Log(_) => "a log line",
        FromWorker::Barrier => "a barrier",
        FromWorker::Settled => "the program's settling",
        FromWorker::Done(_) => "an outcome",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{Call, Done, LogLevel, LogLine};

    fn call(number: u32, op: BridgeOp, tool: &str) -> FromWorker {
        FromWorker::Call(Call { call: number, op, tool: tool.into(), payload: "{}".into(), position: None })
    }

    fn log(text: &str) -> FromWorker {
        FromWorker::Log(LogLine { level: LogLevel::Log, text: text.into() })
    }

    fn done() -> FromWorker {
        FromWorker::Done(Done { outcome: Ok("null".into()), warnings: Vec::new() })
    }

    fn running() -> Conversation {
        let mut conversation = Conversation::new(3, 10);
        conversation.accept(&FromWorker::Hello { version: PROTOCOL_VERSION }).expect("hello");
        conversation.accept(&FromWorker::Ready).expect("ready");
        conversation
    }

    #[test]
    fn budgets_hold_exactly() {
        let mut conversation = running();
        for number in 0..3 {
            conversation.accept(&call(number, BridgeOp::Call, "t")).expect("within budget");
        }
        assert_eq!(conversation.accept(&call(3, BridgeOp::Call, "t")), Err(Violation::TooManyCalls { max_calls: 3 }));
        let mut conversation = running();
        for _ in 0..10 {
            conversation.accept(&log("")).expect("an empty line costs one byte");
        }
        assert_eq!(conversation.accept(&log("")), Err(Violation::TooMuchLog { max_log_bytes: 10 }));
    }

    #[test]
    fn calls_are_numbered_without_gaps_and_repeats() {
        for number in [1, 2, u32::MAX] {
            let wrong = running().accept(&call(number, BridgeOp::Search, ""));
            assert_eq!(wrong, Err(Violation::CallNumber { call: number, expected: 0 }));
        }
        assert_eq!(running().accept(&call(0, BridgeOp::Search, "t")), Err(Violation::StrayTool));
    }

    #[test]
    fn another_version_is_refused() {
        let hello = FromWorker::Hello { version: PROTOCOL_VERSION + 1 };
        assert!(matches!(Conversation::new(1, 1).accept(&hello), Err(Violation::Version { .. })));
    }

    #[test]
    fn an_unasked_barrier_is_refused() {
        let mut conversation = running();
        assert!(conversation.accept(&FromWorker::Barrier).is_err());
        conversation.barrier_sent();
        conversation.accept(&FromWorker::Barrier).expect("asked");
        assert!(conversation.accept(&FromWorker::Barrier).is_err());
    }

    /// The language of legal conversations, written down a second time as an expression over one letter a frame.
    fn legal(letters: &str) -> bool {
        let Some(rest) = letters.strip_prefix('H') else { return letters.is_empty() };
        let Some(rest) = rest.strip_prefix('R') else { return rest.is_empty() };
        let (body, ended) = match rest.find('D') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, ""),
        };
        if !ended.is_empty() || body.contains(['H', 'R']) {
            return false;
        }
        match body.split_once('S') {
            Some((before, after)) => !before.contains('S') && !after.contains(['S', 'C']),
            None => true,
        }
    }

    proptest! {
        #[test]
        fn accepts_exactly_the_legal_orders(letters in "[HRCLSD]{0,12}", legal_start in any::<bool>()) {
            let letters = if legal_start { format!("HR{letters}") } else { letters };
            let mut conversation = Conversation::new(u32::MAX, usize::MAX);
            let mut calls = 0;
            let mut accepted = true;
            for letter in letters.chars() {
                let frame = match letter {
                    'H' => FromWorker::Hello { version: PROTOCOL_VERSION },
                    'R' => FromWorker::Ready,
                    'C' => { calls += 1; call(calls - 1, BridgeOp::Call, "t") }
                    'L' => log("x"),
                    'S' => FromWorker::Settled,
                    _ => done(),
                };
                if conversation.accept(&frame).is_err() {
                    accepted = false;
                    break;
                }
            }
            prop_assert_eq!(accepted, legal(&letters), "{}", letters);
        }
    }
}

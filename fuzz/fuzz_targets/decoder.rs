//! Any bytes in any chunks: the decoder never panics, never holds more than one unfinished frame, and whatever it accepts
//! comes through again unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolbridge::protocol::{FrameDecoder, FromWorker, HEADER_BYTES, encode};

const CAP_BYTES: usize = 4096;

fuzz_target!(|input: (u8, &[u8])| {
    let (chunk, bytes) = input;
    let mut decoder = FrameDecoder::new(CAP_BYTES);
    for chunk in bytes.chunks(usize::from(chunk).max(1)) {
        decoder.push(chunk);
        loop {
            match decoder.next::<FromWorker>() {
                Ok(Some(frame)) => {
                    let again = encode(&frame, usize::MAX).expect("what was decoded can be encoded");
                    let mut second = FrameDecoder::new(usize::MAX);
                    second.push(&again);
                    assert_eq!(second.next::<FromWorker>(), Ok(Some(frame)));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(decoder.held_bytes() < CAP_BYTES + HEADER_BYTES);
    }
    let _ = decoder.finish();
});

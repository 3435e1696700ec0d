//! The binary.

fn main() {
    toolbridge::init();
}

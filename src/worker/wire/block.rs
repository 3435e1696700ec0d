//! Content blocks of MCP: their bulk does not count against the limit of a value.

/// Tells whether an object that was just written is an image, audio or resource block of MCP.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one key was seen")]
pub(super) struct Block {
    kind: Option<&'static str>,
    data: bool,
    mime_type: bool,
    resource: bool,
    uri: bool,
}

impl Block {
    pub(super) fn saw(&mut self, key: &str, value: &str) {
        match key {
            "\"type\"" => {
                self.kind = match value {
                    "\"image\"" => Some("image"),
                    "\"audio\"" => Some("audio"),
                    "\"resource\"" => Some("resource"),
                    "\"resource_link\"" => Some("resource_link"),
                    _ => None,
                }
            }
            "\"data\"" => self.data = value.starts_with('"'),
            "\"mimeType\"" => self.mime_type = value.starts_with('"'),
            "\"resource\"" => self.resource = value.starts_with('{'),
            "\"uri\"" => self.uri = value.starts_with('"'),
            _ => {}
        }
    }

    pub(super) fn is_block(&self) -> bool {
        match self.kind {
            Some("image" | "audio") => self.data && self.mime_type,
            Some("resource") => self.resource,
            Some(_) => self.uri,
            None => false,
        }
    }
}

//! What a replay may go by, read a second time and by other means than the code.

/// Whether the bytes are exactly one safe HTTP/1 request without a body, within the limits of what is replayed.
pub(super) fn is_one_safe_request(bytes: &[u8]) -> bool {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let Some(head) = text.strip_suffix("\r\n\r\n") else { return false };
    let mut lines = head.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, version] = first.as_slice() else { return false };
    let fields: Vec<&str> = lines.collect();
    bytes.len() <= 8_192
        && fields.len() <= 64
        && ["GET", "HEAD", "OPTIONS"].contains(&method)
        && !target.is_empty()
        && target.chars().all(|char| char.is_ascii_graphic())
        && ["HTTP/1.0", "HTTP/1.1"].contains(&version)
        && fields.into_iter().all(is_harmless)
}

fn is_harmless(field: &str) -> bool {
    let Some((name, value)) = field.split_once(':') else { return false };
    let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    let is_text = |char: char| char == '\t' || !char.is_ascii_control();
    let more = ["content-length", "transfer-encoding", "upgrade", "expect"];
    !name.is_empty()
        && name.chars().all(is_token)
        && value.chars().all(is_text)
        && !more.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether an answer may be waited for: it is the beginning of a small response that says how long it is, or may become one.
pub(super) fn may_be_held(request: &[u8], answer: &[u8]) -> bool {
    let text: String = answer.iter().map(|byte| char::from(*byte)).collect();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        let beginning: String = text.chars().take(7).collect();
        return "HTTP/1.".starts_with(&beginning) && answer.len() < 16_384;
    };
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default();
    let has_no_body = request.starts_with(b"HEAD ") || ["204", "304"].contains(&status);
    if has_no_body || status.starts_with('1') {
        return false;
    }
    let is_framing = |field: &String| {
        ["content-length:", "transfer-encoding:"].iter().any(|it| field.starts_with(it))
    };
    let framing: Vec<String> = lines.map(str::to_ascii_lowercase).filter(is_framing).collect();
    let [one] = framing.as_slice() else { return false };
    let length = one.strip_prefix("content-length:").and_then(|it| it.trim().parse::<usize>().ok());
    let begun = body.chars().count();
    length.is_some_and(|length| begun < length && answer.len() - begun + length <= 16_384)
}

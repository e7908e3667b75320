//! Bytes as hexadecimal text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// The usual form with hyphens, lower case.
pub fn uuid_to_text(uuid: &[u8; 16]) -> String {
    let hex = to_hex(uuid);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Reads the form with hyphens only: other texts are texts.
pub fn uuid_from_text(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
        return None;
    }
    let digits: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != b'-').collect();
    from_hex(&digits)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_text() {
        assert_eq!(to_hex(&[0, 15, 255]), "000fff");
        assert_eq!(from_hex(b"000FfF"), Some(vec![0, 15, 255]));
        assert_eq!(from_hex(b"00f"), None);
        assert_eq!(from_hex(b"0g"), None);
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(uuid_to_text(&uuid_from_text(uuid).unwrap()), uuid);
        assert_eq!(uuid_from_text("0123456789abcdef0123456789abcdef"), None);
    }
}

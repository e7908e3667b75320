//! The query of a list: known names only, each at most once.

use std::{fmt::Display, str::FromStr};

use percent_encoding::percent_decode_str;

use crate::{
    error::{self, ApiError},
    nearest::nearest,
    settings::ApiSettings,
};

/// The largest offset: what a JSON number holds exactly everywhere.
pub(crate) const OFFSET_MAX: u64 = (1 << 53) - 1;

pub(crate) struct Parameters(Vec<(String, String)>);

/// Which part of a list is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageQuery {
    pub limit: usize,
    pub offset: usize,
}

impl Parameters {
    pub fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, ApiError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            if pairs.iter().any(|(given, _)| *given == name) {
                return Err(ApiError::new(error::INVALID_PARAMETER, format!("{name} is given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, if it is given; `allowed` says what it may be.
    pub fn parse<T: FromStr>(&self, name: &str, allowed: impl Display) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| invalid(name, value, allowed))
    }

    pub fn page(&self, settings: &ApiSettings) -> Result<PageQuery, ApiError> {
        let limit = self
            .whole("limit", 1, settings.limit_max as u64)?
            .map_or(settings.default_limit.min(settings.limit_max), |it| it as usize);
        let offset = self.whole("offset", 0, OFFSET_MAX)?.unwrap_or(0) as usize;
        Ok(PageQuery { limit, offset })
    }

    pub fn whole(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        // `parse` would also take a plus sign.
        let number = value.parse::<u64>().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
        match number {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(invalid(name, value, format_args!("a whole number from {min} to {max}"))),
        }
    }
}

/// A plus sign stays one: no parameter can have a space in it, but times and URLs can have a plus.
fn decode(text: &str) -> Result<String, ApiError> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| ApiError::new(error::INVALID_PARAMETER, format!("{text:?} is not UTF-8 when it is decoded")))
}

fn invalid(name: &str, value: &str, allowed: impl Display) -> ApiError {
    ApiError::new(error::INVALID_PARAMETER, format!("{name} is {value:?}, it must be {allowed}"))
}

fn unknown(name: &str, known: &[&'static str]) -> ApiError {
    let detail = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("{name:?} is not a parameter here; did you mean {meant:?}?"),
        None => format!("{name:?} is not a parameter here; there are {}", known.join(", ")),
    };
    ApiError::new(error::INVALID_PARAMETER, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_or_refused_with_the_value_and_what_is_allowed() {
        let page = |query: &str| {
            let parameters = Parameters::read(Some(query), &["limit", "offset"])?;
            parameters.page(&ApiSettings::default()).map(|page| (page.limit, page.offset))
        };
        assert_eq!(page("").unwrap(), (30, 0));
        assert_eq!(page("limit=5&offset=70").unwrap(), (5, 70));
        assert_eq!(page("&limit=1000&").unwrap(), (1000, 0));
        let refuse = |query: &str, detail: &str| assert_eq!(page(query).unwrap_err().detail(), detail, "{query}");
        refuse("limit=0", "limit is \"0\", it must be a whole number from 1 to 1000");
        refuse("limit=1001", "limit is \"1001\", it must be a whole number from 1 to 1000");
        refuse("limit=+1", "limit is \"+1\", it must be a whole number from 1 to 1000");
        refuse("limit", "limit is \"\", it must be a whole number from 1 to 1000");
        refuse("offset=-1", "offset is \"-1\", it must be a whole number from 0 to 9007199254740991");
        refuse("limit=1&limit=2", "limit is given twice");
        refuse("limti=1", "\"limti\" is not a parameter here; did you mean \"limit\"?");
        refuse("completely=1", "\"completely\" is not a parameter here; there are limit, offset");
        refuse("limit=%ff", "\"%ff\" is not UTF-8 when it is decoded");
    }
}

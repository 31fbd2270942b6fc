//! `Hosts`: admits requests to the port's own addresses and names, from programs and from its own pages.
//!
//! A page in a browser may point its own name at this machine (DNS rebinding), and then shares an origin with
//! the port. Its requests still carry the name that the page was loaded from.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{StatusCode, Uri};

use super::response::HttpRefusal;

/// The hosts under which this port answers.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    listen: SocketAddr,
    /// In small letters.
    listed: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(listen: SocketAddr, listed: &[String]) -> Self {
        Self { listen, listed: listed.to_vec() }
    }

    /// Refuses a request to another host, and a request of a page of another origin. A client that names no
    /// host is no browser.
    pub(crate) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let named = named(uri, headers)?;
        if let Some(host) = named.as_ref().map(host_of).filter(|host| !self.is_own(host)) {
            let error = format!(
                "`{host}` is not a host of this port: it answers for its own address, `localhost`, and the hosts listed \
                 in `[runner] hosts`"
            );
            return Err(HttpRefusal::new(StatusCode::MISDIRECTED_REQUEST, error).closing());
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        if origin.to_str().is_ok_and(|origin| self.is_own_origin(origin, named.as_ref())) {
            return Ok(());
        }
        let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
        let error = format!(
            "a page of `{origin}` cannot use this port: only pages of the port itself, or of a host in `[runner] hosts`, can"
        );
        Err(HttpRefusal::new(StatusCode::FORBIDDEN, error).closing())
    }

    fn is_own(&self, host: &str) -> bool {
        let listed = || self.listed.iter().any(|own| own == host);
        match host.parse::<IpAddr>() {
            // DNS rebinding needs a name, and an address has none.
            Ok(address) => {
                let own = self.listen.ip();
                own.is_unspecified() || own.to_canonical() == address.to_canonical() || listed()
            }
            Err(_) => host == "localhost" || listed(),
        }
    }

    fn is_own_origin(&self, origin: &str, named: Option<&Authority>) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        let host = host_of(&authority);
        if self.listed.contains(&host) {
            return true;
        }
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return false,
        };
        let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
        named.is_some_and(|named| host_of(named) == host && port(named) == port(&authority))
    }
}

/// The target of the request: the host of an absolute URI, else the header `Host`.
fn named(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, HttpRefusal> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.clone()));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let several = headers.contains_key(HOST);
        return if several { Err(unclear()) } else { Ok(None) };
    };
    if host.is_empty() {
        return Ok(None);
    }
    Authority::try_from(host.as_bytes()).map(Some).map_err(|_| unclear())
}

/// The name or address without its port, in small letters.
fn host_of(authority: &Authority) -> String {
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn unclear() -> HttpRefusal {
    HttpRefusal::wrong("the header `Host` is not a valid host").closing()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(listen: &str, uri: &str, headers: &[(hyper::header::HeaderName, &str)]) -> String {
        let hosts = Hosts::new(listen.parse().unwrap(), &["tide.example".to_owned()]);
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let admitted = hosts.admit(&uri.parse().unwrap(), &headers);
        admitted.map_or_else(|refusal| refusal.to_string(), |()| "answered".to_owned())
    }

    fn of_host(listen: &str, host: &str) -> String {
        answer(listen, "/healthz", &[(HOST, host)])
    }

    #[test]
    fn the_port_answers_for_its_own_address_localhost_and_listed_names() {
        let own =
            ["127.0.0.1:8484", "127.0.0.1", "localhost:9", "LocalHost.", "tide.example", "TIDE.example:443"];
        for host in own {
            assert_eq!(of_host("127.0.0.1:8484", host), "answered", "{host}");
        }
        assert_eq!(answer("127.0.0.1:8484", "/healthz", &[]), "answered");
        assert_eq!(
            answer("127.0.0.1:8484", "http://localhost/healthz", &[(HOST, "evil.example")]),
            "answered"
        );
        let others = [
            "evil.example",
            "10.0.0.5",
            "tide.example.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil",
        ];
        for host in others {
            assert!(of_host("127.0.0.1:8484", host).starts_with("421 `"), "{host}");
        }
        assert!(
            answer("127.0.0.1:8484", "http://evil.example/", &[(HOST, "localhost")]).starts_with("421 `")
        );
        assert!(
            answer("127.0.0.1:8484", "/", &[(HOST, "localhost"), (HOST, "evil.example")]).starts_with("400")
        );
        assert!(of_host("127.0.0.1:8484", "a b").starts_with("400"));
    }

    #[test]
    fn a_port_on_all_addresses_answers_for_each_address_and_for_no_name() {
        for listen in ["0.0.0.0:8484", "[::]:8484"] {
            for host in ["10.0.0.5:8484", "[fe80::1]:8484", "127.0.0.1", "localhost"] {
                assert_eq!(of_host(listen, host), "answered", "{host}");
            }
            assert!(of_host(listen, "evil.example").starts_with("421 `"));
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let from = |host: &str, origin: &str| {
            answer("127.0.0.1:8484", "/jobs/p/q/1", &[(HOST, host), (ORIGIN, origin)])
        };
        assert_eq!(from("127.0.0.1:8484", "http://127.0.0.1:8484"), "answered");
        assert_eq!(from("localhost", "http://localhost:80"), "answered");
        assert_eq!(from("127.0.0.1:8484", "https://tide.example"), "answered");
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:8484", "file://", "x"]
        {
            assert!(from("127.0.0.1:8484", origin).starts_with("403 a page of `"), "{origin}");
        }
        let unnamed = answer("127.0.0.1:8484", "/", &[(ORIGIN, "http://127.0.0.1:8484")]);
        assert!(unnamed.starts_with("403 "), "{unnamed}");
    }
}

//! The configuration as a whole: layers, messages, generated texts.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

/// The problems of a file's text, one per line.
fn wrong(text: &str) -> String {
    let problems = parse(text).expect_err("the text is wrong");
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn with_variables(pairs: &[(&str, &str)]) -> Result<Loaded, Problems> {
    assemble(None, &variables(pairs), &[])
}

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse("[http]\n").unwrap(), Config::default());
}

#[test]
fn the_sample_is_the_default() {
    assert_eq!(parse(&sample()).unwrap(), Config::default());
    for line in sample().lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for key in keys::all() {
        assert!(sample().contains(&format!("\n{} = {}\n", key.name, key.default)), "{}", key.path);
    }
}

#[test]
fn the_sample_reads_well() {
    insta::assert_snapshot!(sample());
}

#[test]
fn the_reference_page_is_current() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/config.md"));
    let page = reference();
    if fs::read_to_string(file).ok().as_ref() != Some(&page) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, page).unwrap();
        panic!("docs/reference/config.md was stale and has been rewritten; look at it and commit it");
    }
}

#[test]
fn a_file_sets_typed_values() {
    let config = parse(
        r#"
        [http]
        addr = ":9090"
        timeout = "2s"
        body-max = 2048
        [repository]
        engine = "memory"
        path = "/var/lib/flare"
        [task]
        queue-subscription-bucket = "a"
        [security]
        tokens = ["0123456789abcdef"]
        hosts = ["Flare.Company.com"]
        "#,
    );
    let config = config.unwrap();
    assert_eq!(config.http.addr, ":9090".parse().unwrap());
    assert_eq!(config.http.timeout.get(), std::time::Duration::from_secs(2));
    assert_eq!(config.http.body_max.bytes(), 2048);
    assert_eq!(config.repository.engine, RepositoryEngine::Memory);
    assert_eq!(config.repository.path, Path::new("/var/lib/flare"));
    assert_eq!(config.task.queue_subscription_bucket, "a");
    assert!(config.security.tokens[0].matches("0123456789abcdef"));
    assert_eq!(config.security.hosts[0].as_str(), "flare.company.com");
}

#[test]
fn dotted_and_inline_tables_are_sections_too() {
    assert_eq!(parse("http.default-limit = 7").unwrap().http.default_limit, 7);
    assert_eq!(parse("http = { default-limit = 7 }").unwrap().http.default_limit, 7);
}

#[test]
fn unknown_names_are_all_reported_with_their_place_and_the_nearest_name() {
    insta::assert_snapshot!(wrong(
        "adr = 1\naddr = \":1\"\nstrange = 1\n[http]\nadr = \":8080\"\n\"élan\" = 1\n  path = \"x\"\n[htpp]\naddr = \":1\"\n[other]\n[log]\nlvel = \"info\"\n"
    ), @r"
    flare.toml:1:1: `adr` stands outside of a section; did you mean `http.addr`?
    flare.toml:2:1: `addr` stands outside of a section; did you mean `http.addr`?
    flare.toml:3:1: unknown key `strange` outside of a section; the sections are `http`, `repository`, `task`, `aws`, `delivery`, `node`, `domain`, `log`, `security`
    flare.toml:5:1: unknown key `http.adr`; did you mean `addr`?
    flare.toml:6:1: unknown key `http.élan`; the keys of [http] are `addr`, `default-limit`, `limit-max`, `timeout`, `read-timeout`, `body-timeout`, `body-max`, `batch-max`, `batch-body-max`, `json-depth-max`, `header-max`, `url-max`, `connections-max`, `idle-timeout`
    flare.toml:7:3: unknown key `http.path`; did you mean `repository.path`?
    flare.toml:8:2: unknown section `htpp`; did you mean [http]?
    flare.toml:10:2: unknown section `other`; the sections are `http`, `repository`, `task`, `aws`, `delivery`, `node`, `domain`, `log`, `security`
    flare.toml:12:1: unknown key `log.lvel`; did you mean `level`?
    ");
}

#[test]
fn wrong_values_say_what_is_allowed() {
    insta::assert_snapshot!(wrong(
        r#"[http]
addr = "here"
default-limit = "many"
limit-max = 0
timeout = 1
read-timeout = "soon"
body-timeout = "0s"
body-max = "1M"
batch-max = 1.5
json-depth-max = 1000
header-max = -1
url-max = 99999999999999999999
[repository]
engine = "mongodb"
path = ""
[log]
level = true
output = ["stdout"]
[security]
hosts = "a"
origins = ["https://a", "b"]
tokens = ["short-secret"]
[aws]
secret = 12345
"#
    ));
}

#[test]
fn a_section_given_as_a_value_is_refused() {
    insta::assert_snapshot!(wrong("http = 3"), @"flare.toml:1:1: `http` is a section, not a value; write [http] and its keys below it");
}

#[test]
fn syntax_errors_have_a_place() {
    insta::assert_snapshot!(wrong("[http]\naddr = \n[log\nlevel = \"info\"\n"));
    insta::assert_snapshot!(wrong("[http]\ntimeout = \"1s\"\ntimeout = \"2s\"\n"));
}

#[test]
fn secrets_are_not_repeated() {
    let text = "[security]\ntokens = [\"hunter2\"]\n[aws]\nsecret = [\"hunter2\"]\n";
    assert!(!wrong(text).contains("hunter2"));
    let error = with_variables(&[("FLARE_SECURITY_TOKENS", "hunter2")]).unwrap_err();
    assert!(!error.to_string().contains("hunter2"));
    let config = parse("[security]\ntokens = [\"hunter2-hunter2-hunter2\"]\n[aws]\nsecret = \"hunter2\"\n").unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!toml::to_string(&config).unwrap().contains("hunter2"));
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let file = Some(("f.toml", "[http]\naddr = \":1\"\ntimeout = \"1s\"\nread-timeout = \"1s\"\n"));
    let variables = variables(&[("FLARE_HTTP_ADDR", ":2"), ("FLARE_HTTP_TIMEOUT", "2s"), ("HOME", "/")]);
    let flag = Flag { name: "--addr", section: "http", key: "addr", value: ":3".to_owned() };
    let http = assemble(file, &variables, &[flag]).unwrap().config.http;
    assert_eq!(http.addr.to_string(), ":3");
    assert_eq!(http.timeout.to_string(), "2s");
    assert_eq!(http.read_timeout.to_string(), "1s");
}

#[test]
fn variables_are_read_by_type() {
    let loaded = with_variables(&[
        ("FLARE_HTTP_DEFAULT_LIMIT", "12"),
        ("FLARE_HTTP_BODY_MAX", "4096"),
        ("FLARE_SECURITY_HOSTS", "a.com, b.com,"),
        ("FLARE_SECURITY_ORIGINS", ""),
        ("FLARE_TASK_QUEUE_SUBSCRIPTION_BUCKET", "q"),
        ("FLARE_CONFIG", "x"),
        ("FLARE_URL", "x"),
        ("FLARE_TOKEN", "x"),
        ("FLARE_TEST_ANYTHING", "x"),
        ("FLARE_BENCH_ANYTHING", "x"),
    ]);
    let config = loaded.unwrap().config;
    assert_eq!(config.http.default_limit, 12);
    assert_eq!(config.http.body_max.bytes(), 4096);
    assert_eq!(config.security.hosts.len(), 2);
    assert!(config.security.origins.is_empty());
    assert_eq!(config.task.queue_subscription_bucket, "q");
}

#[test]
fn wrong_variables_are_named() {
    let error = with_variables(&[
        ("FLARE_HTTP_ADR", ":1"),
        ("FLARE_HTTP_TIMEOUT", "soon"),
        ("FLARE_HTTP_LIMIT_MAX", "x"),
        ("FLARE_SOMETHING_ENTIRELY_DIFFERENT", ""),
    ]);
    insta::assert_snapshot!(error.unwrap_err());
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let variable = ("FLARE_HTTP_ADDR".into(), OsString::from_vec(vec![0xff]));
    let error = assemble(None, &[variable], &[]).unwrap_err();
    insta::assert_snapshot!(error, @r"
    the configuration is wrong
      FLARE_HTTP_ADDR: is not valid UTF-8
    ");
}

#[test]
fn a_wrong_flag_is_named() {
    let flag = Flag { name: "--addr", section: "http", key: "addr", value: "x".to_owned() };
    let error = assemble(None, &[], &[flag]).unwrap_err().to_string();
    assert!(error.contains("--addr: `http.addr` has a wrong value: \"x\" is not an address"), "{error}");
}

#[test]
fn keys_that_contradict_each_other_are_refused_where_they_were_set() {
    insta::assert_snapshot!(wrong(
        "[http]\nlimit-max = 10\n[delivery]\nconcurrency = 300\ntimeout = \"2m\"\n[task]\nengine = \"memory\"\n"
    ), @r#"
    flare.toml:2:13: `http.default-limit` is 30 (the default), more than `http.limit-max`, which is 10
    flare.toml:4:15: `delivery.concurrency` is 300, more than `delivery.concurrency-max`, which is 256 (the default)
    flare.toml:5:11: `delivery.timeout` is 2m, more than `delivery.timeout-max`, which is 1m (the default)
    flare.toml:7:10: `task.engine` "memory" would lose what the repository keeps; it goes only with `repository.engine` "memory", otherwise choose "repository"
    "#);
}

#[test]
fn roles_are_divided_only_where_processes_can_share_the_data() {
    let shared =
        |node: &str| format!("[repository]\nengine = \"postgres\"\n[http]\naddr = \":8080\"\n[node]\n{node}\n");
    let config = parse(&shared("roles = [\"api\"]")).unwrap();
    assert_eq!(config.node.roles, [Role::Api]);
    let worker = shared("roles = [\"worker\"]\naddress = \"http://10.0.0.7:8080\"");
    assert_eq!(parse(&worker).unwrap().node.roles, [Role::Worker]);
    assert_eq!(parse("[node]\nroles = [\"worker\", \"api\"]\n").unwrap().node.roles.len(), 2);
    let flag = Flag { name: "--roles", section: "node", key: "roles", value: "worker,api".to_owned() };
    assert_eq!(assemble(None, &[], &[flag]).unwrap().config.node.roles, [Role::Worker, Role::Api]);
    let variables = with_variables(&[("FLARE_NODE_ROLES", "api"), ("FLARE_REPOSITORY_ENGINE", "mongodb")]);
    assert_eq!(variables.unwrap().config.node.roles, [Role::Api]);

    let said = [
        wrong("[node]\nroles = [\"api\"]\n"),
        wrong("[node]\nroles = []\n"),
        wrong("[node]\nroles = [\"api\", \"master\"]\n"),
        wrong(&shared("roles = [\"worker\"]")),
        wrong(&shared("address = \"10.0.0.7\"")),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn places_of_deliveries_are_networks_addresses_and_names() {
    let text = "[delivery]\nallow = [\"10.0.0.0/8\", \"::1\", \"Hooks.internal\"]\ndeny = [\"*.evil.test\"]\n";
    let shown = |entries: &[DeliveryTarget]| entries.iter().map(ToString::to_string).collect::<Vec<_>>();
    let delivery = parse(text).unwrap().delivery;
    assert_eq!(shown(&delivery.allow), ["10.0.0.0/8", "::1", "hooks.internal"]);
    assert_eq!(shown(&delivery.deny), ["*.evil.test"]);
    let variables = with_variables(&[("FLARE_DELIVERY_ALLOW", "10.0.0.0/8, localhost")]);
    assert_eq!(shown(&variables.unwrap().config.delivery.allow), ["10.0.0.0/8", "localhost"]);
    insta::assert_snapshot!(wrong(
        "[delivery]\nallow = [\"::1\", \"10.0.0.1/8\"]\ndeny = [\"http://a\"]\ncertificate = 1\n"
    ));
    insta::assert_snapshot!(wrong("[delivery]\nallow = [\"127.1\"]\ndeny = \"a.test\"\n"));
    assert_eq!(
        wrong("[delivery]\nkey = \"key.pem\"\n"),
        "flare.toml:2:7: `delivery.certificate` and `delivery.key` go together; set both or none"
    );
}

#[test]
fn surprising_choices_are_warned_about() {
    let warnings = |text: &str| assemble(Some(("f", text)), &[], &[]).unwrap().warnings;
    assert!(warnings("").is_empty());
    assert!(warnings("[http]\naddr = \"[::1]:8080\"").is_empty());
    assert!(warnings("[http]\naddr = \":8080\"\n[security]\ntokens = [\"0123456789abcdef\"]").is_empty());
    assert_eq!(warnings("[http]\naddr = \":8080\"").len(), 1);
    assert_eq!(warnings("[repository]\nengine = \"memory\"\n[task]\nengine = \"memory\"").len(), 1);
    let everywhere =
        "[http]\naddr = \":8080\"\n[security]\ntokens = [\"0123456789abcdef\"]\n[repository]\nengine = \"postgres\"\n";
    assert!(warnings(everywhere)[0].contains("node.address"));
    assert!(warnings(&format!("{everywhere}[node]\naddress = \"http://flare-1:8080\"\n")).is_empty());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = |content: Option<&[u8]>, expected: &str| {
        let file = folder.path().join("f.toml");
        let _ = content.map(|content| fs::write(&file, content).unwrap());
        let error = load(&Sources { file: Some(file), ..Sources::default() }).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(expected) && error.contains("f.toml"), "{error}");
    };
    check(None, "cannot read the configuration file");
    check(Some(b"[http]\n# \xff"), "f.toml:2:3: the configuration file is not valid UTF-8");
    check(Some(&vec![b'#'; 1 << 21]), "larger than");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn no_change_of_the_sample_makes_the_reader_panic(at in any::<prop::sample::Index>(), text in "[\\PC\n]{0,5}") {
        let sample = sample();
        let at = sample.floor_char_boundary(at.index(sample.len()));
        let _ = parse(&format!("{}{text}{}", &sample[..at], &sample[at..]));
    }

    #[test]
    fn no_value_makes_the_reader_panic(key in any::<prop::sample::Index>(), value in "(\"[\\PC&&[^\"]]{0,20}\"|[0-9+_.eE:-]{1,20}|\\[[0-9,]{0,9}\\])") {
        let keys: Vec<_> = keys::all().collect();
        let key = keys[key.index(keys.len())];
        let (section, name) = key.path.split_once('.').unwrap();
        let _ = parse(&format!("[{section}]\n{name} = {value}\n"));
    }
}

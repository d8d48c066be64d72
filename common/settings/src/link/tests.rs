//! Links are read in the usual notations, and written in a form that can be read back.

use super::*;

#[test]
fn links_are_read_as_people_write_them() {
    for (text, latency, bandwidth) in [
        ("nvlink", 5_000, 450e9),
        ("pcie4", 10_000, 31.5e9),
        ("ethernet25g", 50_000, 3.125e9),
        ("50us,3GB/s", 50_000, 3e9),
        ("0.2ms, 100MiB/s", 200_000, 104_857_600.0),
        ("0,25Gbit/s", 0, 3.125e9),
        ("2s,1kB/s", 2_000_000_000, 1000.0),
    ] {
        let link = parse(text).unwrap().link;
        assert_eq!(link, Link { latency: Duration::from_nanos(latency), bandwidth }, "{text}");
    }
}

#[test]
fn the_ways_between_places_have_their_own_presets() {
    for (text, bandwidth) in
        [("pcie3", 15.75e9), ("pcie4", 31.5e9), ("pcie5", 63e9), ("nvlink-c2c", 450e9), ("0,2GB/s", 2e9)]
    {
        assert_eq!(parse_host(text).unwrap().link.bandwidth, bandwidth, "{text}");
    }
    // 16 lanes, 128 of 130 bits, 8 bits per byte.
    for (name, transfers) in [("pcie3", 8e9), ("pcie4", 16e9), ("pcie5", 32e9)] {
        let exact: f64 = transfers * 16.0 * 128.0 / 130.0 / 8.0;
        let error = parse_host(name).unwrap().link.bandwidth / exact - 1.0;
        assert!(error.abs() < 1e-3, "{name}: {error}");
    }
    assert_eq!(parse_disk("80us,2.5GB/s").unwrap().describe(), "80 µs, 2.50 GB/s");
    assert!(parse_host("nvlink").is_err() && parse_disk("pcie4").is_err());
}

#[test]
fn what_is_no_link_says_what_one_looks_like() {
    for text in ["", "wifi", "50us", "3GB/s", "50,3GB/s", "50us,3GB", "50us,0GB/s", "11s,3GB/s", "-1us,3GB/s"]
    {
        let error = parse(text).unwrap_err();
        assert!(error.contains("such as"), "{text}: {error}");
    }
}

#[test]
fn what_is_written_as_a_flag_is_read_again_to_three_digits() {
    for (latency, bandwidth) in
        [(0, 1e3), (7, 9.994e5), (999, 3.456e9), (12_345, 4.5e11), (9_999_999_999, 1e12)]
    {
        let link = Link { latency: Duration::from_nanos(latency), bandwidth };
        let read = parse(&flag(&link)).unwrap().link;
        let near = |read: f64, given: f64| (read - given).abs() <= 0.005 * given;
        assert!(near(read.latency.as_secs_f64(), latency as f64 * 1e-9), "{}", flag(&link));
        assert!(near(read.bandwidth, bandwidth), "{}", flag(&link));
    }
}

#[test]
fn words_carry_the_figures() {
    assert_eq!(parse("ethernet25g").unwrap().describe(), "25G Ethernet: 50 µs, 3.12 GB/s");
    assert_eq!(parse("1.5ms,3GB/s").unwrap().describe(), "1.5 ms, 3.00 GB/s");
    assert_eq!(parse("0,100MB/s").unwrap().describe(), "0 s, 100 MB/s");
}

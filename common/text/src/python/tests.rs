//! Templates that use Python's filters, strings and loops.

use super::*;

fn render(template: &str, of: &str) -> String {
    let of: Value = serde_json::from_str(of).unwrap();
    let template = with_generation_filter(template);
    environment().unwrap().render_str(&template, Value::from_pairs([("x", of)])).unwrap()
}

#[test]
fn json_is_written_as_python_writes_it() {
    // The right-hand sides are the output of json.dumps.
    let value = r#"{"b": [1, -2.5, 1e16, 1e-5, 0.0001, true, null], "a": {"é<&>": "\"\\\n\u0001\u007f😀"}, "c": [], "d": {}}"#;
    for (arguments, expected) in [
        (
            "",
            r#"{"b": [1, -2.5, 1e+16, 1e-05, 0.0001, true, null], "a": {"é<&>": "\"\\\n\u0001DEL😀"}, "c": [], "d": {}}"#,
        ),
        (
            "(ensure_ascii=True, sort_keys=True, separators=(',', ':'))",
            r#"{"a":{"\u00e9<&>":"\"\\\n\u0001\u007f\ud83d\ude00"},"b":[1,-2.5,1e+16,1e-05,0.0001,true,null],"c":[],"d":{}}"#,
        ),
    ] {
        let expected = expected.replace("DEL", "\u{7f}");
        assert_eq!(render(&format!("{{{{ x | tojson{arguments} }}}}"), value), expected);
    }
    let indented = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}";
    assert_eq!(render("{{ x | tojson(indent=2) }}", r#"{"a": [1, 2], "b": {}}"#), indented);
}

#[test]
fn generation_tags_become_marks() {
    let [open, close] = MARKS;
    let template = "{# {% generation %} #}{% set seen = namespace(last=0) %}{% for y in x %}\n  \
                    {%- generation -%}\n {% set seen.last = y %}{{ y }}{{ loop.last }}\n  \
                    {% endgeneration %}\n.{% endfor %}{{ generation }}{{ seen.last }}";
    let text = render(template, "[1, 2]");
    assert_eq!(text, format!("{open}1False\n{close}.{open}2True\n{close}.2"));
    assert!(marks_generation(&with_generation_filter("{%- generation %}a{% endgeneration -%}")));
    assert!(!marks_generation(&with_generation_filter("{# {% generation %} #}{{ generation }}")));
}

#[test]
fn templates_raise_errors_and_know_the_date() {
    let error = environment().unwrap().render_str("{{ raise_exception('no ' ~ 1) }}", ()).unwrap_err();
    assert_eq!(error.detail(), Some("no 1"));
    let day = || jiff::ZonedDateTime::now().date().to_string();
    let before = day();
    let said = render("{{ strftime_now('%Y-%m-%d') }}", "1");
    assert!([before, day()].contains(&said), "{said}");
}

#[test]
fn strings_and_loops_are_pythons() {
    let of = r#"["a</t>b", "\n c\n"]"#;
    let template = "{% for y in x[::-1] %}{% if loop.first %}{% continue %}{% endif %}{{ y.split('</t>')[-1] }}\
                    {% break %}{% endfor %}{{ x[1].strip('\\n') }}|{{ x[0].startswith('a') }}|{{ none }}\
                    |{{ 'ab' is sequence }}|{{ x is string }}|{{ none is iterable }}";
    assert_eq!(render(template, of), "b c|True|None|True|False|False");
}

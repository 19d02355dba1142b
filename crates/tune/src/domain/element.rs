//! A part of libvirt's XML: what is in it, what it would be with something else, and how it is written.

use crate::facts::Element;
use crate::finding::Line;

/// How much further in a part of a part stands.
const INDENT: &str = "  ";

impl Element {
    /// One with nothing in it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// What an attribute says.
    #[must_use]
    pub fn get(&self, attribute: &str) -> Option<&str> {
        let mut all = self.attributes.iter();
        all.find_map(|(name, value)| (name == attribute).then_some(value.as_str()))
    }

    /// The first part of that name.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&Self> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// All parts of that name.
    pub fn all<'e>(&'e self, name: &'static str) -> impl Iterator<Item = &'e Self> + use<'e> {
        self.parts.iter().filter(move |part| part.name == name)
    }

    /// What an attribute of a part says.
    #[must_use]
    pub fn at(&self, part: &str, attribute: &str) -> Option<&str> {
        self.part(part)?.get(attribute)
    }

    /// The same as a number.
    #[must_use]
    pub fn number_at(&self, part: &str, attribute: &str) -> Option<u32> {
        self.at(part, attribute)?.parse().ok()
    }

    /// The same with that attribute saying that.
    #[must_use]
    pub fn with(&self, attribute: &str, value: &str) -> Self {
        let mut new = self.clone();
        let mut all = new.attributes.iter_mut();
        match all.find(|(name, _)| name == attribute) {
            Some((_, old)) => value.clone_into(old),
            None => new
                .attributes
                .push((attribute.to_owned(), value.to_owned())),
        }
        new
    }

    /// The same with that attribute saying nothing.
    #[must_use]
    pub fn without(&self, attribute: &str) -> Self {
        let mut new = self.clone();
        new.attributes.retain(|(name, _)| name != attribute);
        new
    }

    /// The same with that part in the place of those of its name, or as its last one.
    #[must_use]
    pub fn with_part(&self, part: Self) -> Self {
        let mut new = self.clone();
        let at = new.parts.iter().position(|old| old.name == part.name);
        new.parts.retain(|old| old.name != part.name);
        new.parts.insert(at.unwrap_or(new.parts.len()), part);
        new
    }

    /// As libvirt writes it, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let attributes = self.attributes.iter();
        let attributes: String = attributes
            .map(|(name, value)| format!(" {name}='{}'", escaped(value)))
            .collect();
        let name = &self.name;
        let begin = format!("<{name}{attributes}");
        if let Some(text) = &self.text {
            return vec![format!("{begin}>{}</{name}>", escaped(text))];
        }
        if self.parts.is_empty() {
            return vec![format!("{begin}/>")];
        }
        let parts = self.parts.iter().flat_map(Self::lines);
        let parts = parts.map(|line| format!("{INDENT}{line}"));
        let mut lines = vec![format!("{begin}>")];
        lines.extend(parts);
        lines.push(format!("</{name}>"));
        lines
    }
}

/// The lines by which one differs from the other, in their order.
pub fn changed(from: Option<&Element>, to: &Element) -> Vec<Line> {
    let (from, to) = (from.map(Element::lines).unwrap_or_default(), to.lines());
    let mut go = from.iter().filter(|line| !to.contains(line)).cloned();
    let mut come = to.iter().filter(|line| !from.contains(line)).cloned();
    let pairs = std::iter::from_fn(|| match (go.next(), come.next()) {
        (None, None) => None,
        (from, to) => Some(Line { from, to }),
    });
    pairs.collect()
}

/// A size with its unit, in bytes; KiB where none is said (`virScaleInteger`).
///
/// # Errors
/// It is none, to be read after "because".
pub fn size(number: &str, unit: Option<&str>) -> Result<u64, String> {
    let unit = unit.unwrap_or("KiB").to_ascii_lowercase();
    let scale: Option<u64> = match unit.as_str() {
        "b" | "byte" | "bytes" => Some(1),
        unit => {
            let (letter, rest) = unit.split_at_checked(1).unwrap_or_default();
            let power = "kmgtpe".find(letter).filter(|_| !letter.is_empty());
            let base: Option<u64> = match rest {
                "" | "ib" => Some(1024),
                "b" => Some(1000),
                _ => None,
            };
            base.zip(power).and_then(|(base, power)| {
                let power = u32::try_from(power).ok()?;
                base.checked_pow(power + 1)
            })
        }
    };
    let number: Option<u64> = number.trim().parse().ok();
    let bytes = number
        .zip(scale)
        .and_then(|(number, scale)| number.checked_mul(scale));
    bytes.ok_or_else(|| "a size in libvirt's XML of it is not understood".to_owned())
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            // A terminal would take them for orders.
            letter if letter.is_control() => escaped.push_str(&format!("&#{};", u32::from(letter))),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[Line]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_part_is_changed_line_by_line_and_keeps_what_is_said_beside() {
        let driver = Element::named("driver")
            .with("name", "vhost")
            .with("rss", "on");
        let four = driver.with("queues", "4");
        assert_eq!(
            shown(&changed(Some(&driver), &four)),
            ["- <driver name='vhost' rss='on'/>\n+ <driver name='vhost' rss='on' queues='4'/>"]
        );
        assert_eq!(four.without("queues"), driver);
        let eight = changed(Some(&four), &four.with("queues", "8"));
        assert!(eight[0].to.as_ref().unwrap().ends_with("queues='8'/>"));
        assert_eq!(changed(Some(&four), &four), []);
        let model = Element {
            text: Some("EPYC <1>".into()),
            ..Element::named("model")
        };
        let cpu = Element::named("cpu").with("mode", "it's");
        assert_eq!(
            shown(&changed(Some(&cpu), &cpu.with_part(model))),
            [
                "- <cpu mode='it&apos;s'/>\n+ <cpu mode='it&apos;s'>",
                "+   <model>EPYC &lt;1&gt;</model>",
                "+ </cpu>"
            ]
        );
    }

    #[test]
    fn parts_of_a_name_give_way_to_one_where_the_first_stood() {
        let of = |names: &[&str]| Element {
            parts: names.iter().map(|name| Element::named(name)).collect(),
            ..Element::named("x")
        };
        let new = of(&["a", "b", "c", "b"]).with_part(Element::named("b").with("k", "v"));
        assert_eq!(
            new.lines(),
            ["<x>", "  <a/>", "  <b k='v'/>", "  <c/>", "</x>"]
        );
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(size("2048", None), Ok(2 << 20));
        assert_eq!(size("1", Some("GiB")), Ok(1 << 30));
        assert_eq!(
            (size("1", Some("G")), size("7", Some("bytes"))),
            (Ok(1 << 30), Ok(7))
        );
        assert_eq!(size("1", Some("MB")), Ok(1_000_000));
        for (number, unit) in [
            ("x", "K"),
            ("1", "parsec"),
            ("1", ""),
            ("18446744073709551615", "K"),
        ] {
            assert!(size(number, Some(unit)).is_err(), "{number} {unit}");
        }
    }
}

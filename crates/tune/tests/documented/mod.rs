//! What the documentation says of rules.

/// Names in the first cells of the table of rules that tell no cost.
pub fn without_cost() -> Vec<&'static str> {
    let text = include_str!("../../../../docs/DOCTOR.md");
    let heading = "## Rules without a cost, and why\n";
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let names = cells.flat_map(|cell| cell.split(','));
    names.map(|name| name.trim().trim_matches('`')).collect()
}

//! The assignment of rows to columns with the largest sum: the Hungarian method with potentials.

/// For each row the column it is matched with. `weight(row, column)` is `None` where the two
/// cannot be matched; weights are positive, so that a match is always better than none.
///
/// Takes `n^3` steps for the larger side `n`, which is at most [`crate::limits::INTERFACES`].
pub(super) fn best(
    rows: usize,
    columns: usize,
    weight: impl Fn(usize, usize) -> Option<i128>,
) -> Vec<Option<usize>> {
    // Square, 1-based, minimising: a pair that cannot be matched costs nothing and brings nothing.
    let n = rows.max(columns);
    let cost = |row: usize, column: usize| -> i128 {
        if row > rows || column > columns {
            0
        } else {
            -weight(row - 1, column - 1).unwrap_or(0)
        }
    };
    let mut row_potential = vec![0_i128; n + 1];
    let mut column_potential = vec![0_i128; n + 1];
    let mut row_of = vec![0_usize; n + 1];
    for row in 1..=n {
        let mut reach = vec![i128::MAX; n + 1];
        let mut done = vec![false; n + 1];
        let mut came_from = vec![0_usize; n + 1];
        row_of[0] = row;
        let mut column = 0;
        while row_of[column] != 0 {
            done[column] = true;
            let from = row_of[column];
            let (mut step, mut next) = (i128::MAX, 0);
            for other in 1..=n {
                if done[other] {
                    continue;
                }
                let reduced = cost(from, other) - row_potential[from] - column_potential[other];
                if reduced < reach[other] {
                    reach[other] = reduced;
                    came_from[other] = column;
                }
                if reach[other] < step {
                    step = reach[other];
                    next = other;
                }
            }
            for other in 0..=n {
                if done[other] {
                    row_potential[row_of[other]] += step;
                    column_potential[other] -= step;
                } else if reach[other] != i128::MAX {
                    reach[other] -= step;
                }
            }
            column = next;
        }
        while column != 0 {
            let previous = came_from[column];
            row_of[column] = row_of[previous];
            column = previous;
        }
    }
    let mut matched = vec![None; rows];
    for (column, row) in row_of.iter().enumerate().skip(1).take(columns) {
        let Some(row) = row.checked_sub(1).filter(|row| *row < rows) else {
            continue;
        };
        if weight(row, column - 1).is_some() {
            matched[row] = Some(column - 1);
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every assignment tried.
    fn best_sum(weights: &[Vec<Option<i128>>], row: usize, used: u32) -> i128 {
        let Some(columns) = weights.get(row) else {
            return 0;
        };
        let skipped = best_sum(weights, row + 1, used);
        let tried = columns.iter().enumerate().filter_map(|(column, weight)| {
            let free = used & (1 << column) == 0;
            let weight = (*weight)?;
            free.then(|| weight + best_sum(weights, row + 1, used | (1 << column)))
        });
        tried.fold(skipped, i128::max)
    }

    proptest! {
        #[test]
        fn no_assignment_is_better_than_the_one_found(
            weights in (1_usize..6, 1_usize..6).prop_flat_map(|(rows, columns)| {
                let cell = prop::option::weighted(0.7, 1_i128..50);
                prop::collection::vec(prop::collection::vec(cell, columns), rows)
            })
        ) {
            let columns = weights[0].len();
            let found = best(weights.len(), columns, |row, column| weights[row][column]);
            let mut used = vec![false; columns];
            let mut sum = 0;
            for (row, column) in found.iter().enumerate() {
                if let Some(column) = *column {
                    prop_assert!(!std::mem::replace(&mut used[column], true));
                    sum += weights[row][column].unwrap();
                }
            }
            prop_assert_eq!(sum, best_sum(&weights, 0, 0));
        }
    }

    #[test]
    fn nothing_is_matched_with_nothing() {
        assert!(best(0, 0, |_, _| None).is_empty());
        assert_eq!(best(2, 0, |_, _| None), vec![None, None]);
        assert_eq!(best(1, 3, |_, _| None), vec![None]);
    }
}

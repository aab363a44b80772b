//! Reachability between nodes of a graph, computed for many nodes at once.

/// Words of marks that one walk over the graph carries, with 64 marks each.
const BLOCK_WORDS: usize = 16;
const BLOCK_MARKS: usize = 64 * BLOCK_WORDS;

/// The node of a query, and the searched mark.
pub(crate) type ReachQuestion = (usize, usize);

/// Returns for each query whether a path of at least one edge leads from the node to a node with
/// the mark.
///
/// `next` contains the edge targets of each node, `marks` the marks of each node. Cycles are
/// allowed. The time is that of one walk over all edges per 1,024 marks, for any number of queries.
pub(crate) fn reaches(next: &[Vec<usize>], marks: &[Vec<usize>], questions: &[ReachQuestion]) -> Vec<bool> {
    let mut answers = vec![false; questions.len()];
    if questions.is_empty() {
        return answers;
    }
    let components = components(next);
    let mut of_component = vec![0; next.len()];
    for (number, members) in components.iter().enumerate() {
        for node in members {
            of_component[*node] = number;
        }
    }
    let count = questions.iter().map(|(_, mark)| mark + 1).max().unwrap_or(0);
    for first in (0..count).step_by(BLOCK_MARKS) {
        let block = first..first + BLOCK_MARKS;
        let mut own = vec![[0_u64; BLOCK_WORDS]; next.len()];
        for (node, marks) in marks.iter().enumerate() {
            for mark in marks.iter().filter(|mark| block.contains(mark)) {
                own[node][(mark - first) / 64] |= 1 << ((mark - first) % 64);
            }
        }
        let mut reached = vec![[0_u64; BLOCK_WORDS]; components.len()];
        // A component comes after all components that its edges lead to.
        for (number, members) in components.iter().enumerate() {
            let mut all = [0_u64; BLOCK_WORDS];
            for target in members.iter().flat_map(|node| &next[*node]) {
                let beyond = &reached[of_component[*target]];
                for (word, (own, beyond)) in all.iter_mut().zip(own[*target].iter().zip(beyond)) {
                    *word |= own | beyond;
                }
            }
            reached[number] = all;
        }
        for (answer, (node, mark)) in answers.iter_mut().zip(questions) {
            if block.contains(mark) {
                let at = mark - first;
                *answer = (reached[of_component[*node]][at / 64] >> (at % 64)) & 1 == 1;
            }
        }
    }
    answers
}

/// Groups nodes that reach each other (Tarjan's algorithm, without recursion). A group comes after
/// all groups that its edges lead to.
pub(crate) fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; next.len()];
    let mut lowest = vec![0; next.len()];
    let mut open = vec![false; next.len()];
    let mut stack = Vec::new();
    let mut found = Vec::new();
    let mut seen = 0;
    for root in 0..next.len() {
        if order[root] != UNSEEN {
            continue;
        }
        // The path from the root, with the number of walked edges of each node.
        let mut path = vec![(root, 0)];
        while let Some((node, walked)) = path.last_mut() {
            let node = *node;
            if *walked == 0 {
                order[node] = seen;
                lowest[node] = seen;
                seen += 1;
                stack.push(node);
                open[node] = true;
            }
            let target = next[node].get(*walked).copied();
            *walked += 1;
            match target {
                Some(target) if order[target] == UNSEEN => path.push((target, 0)),
                Some(target) if open[target] => lowest[node] = lowest[node].min(order[target]),
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some((before, _)) = path.last() {
                        lowest[*before] = lowest[*before].min(lowest[node]);
                    }
                    if lowest[node] == order[node] {
                        let start = stack.iter().rposition(|one| *one == node).unwrap_or(0);
                        let members = stack.split_off(start);
                        for member in &members {
                            open[*member] = false;
                        }
                        found.push(members);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::reaches;

    /// Computes the same by walking from each node.
    fn walked(next: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            open.extend(next[node].iter().filter(|target| seen.insert(**target)));
        }
        seen
    }

    #[test]
    fn answers_are_those_of_walks() {
        // Small numbers of a linear congruential generator produce graphs with and without cycles.
        let mut state = 7_u64;
        let mut number = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..200 {
            let count = 1 + number(40);
            let edges = number(3 * count);
            let mut next = vec![Vec::new(); count];
            for _ in 0..edges {
                let (from, to) = (number(count), number(count));
                if round % 2 == 0 || from < to {
                    next[from].push(to);
                }
            }
            // Marks span several blocks.
            let marks: Vec<Vec<usize>> = (0..count).map(|node| vec![node * 97]).collect();
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            let questions: Vec<_> = pairs.map(|(from, to)| (from, to * 97)).collect();
            let answers = reaches(&next, &marks, &questions);
            for ((from, mark), answer) in questions.into_iter().zip(answers) {
                assert_eq!(answer, walked(&next, from).contains(&(mark / 97)), "{from} {mark} {next:?}");
            }
        }
    }
}

//! Keeps the house tidy: what a comment cites exists, every file is reached, every file says what it is.
//!
//! A citation is the word `Model:` or `Test:` (or the plural) in a comment, in ARCHITECTURE.md or in
//! docs/, followed by paths: words with `::` or `_`, joined by commas or "and". A path is found when
//! the path of some test in the workspace ends with it, or when it is a module with a test in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::house::House;
use crate::source::{Function, Source, reach, rust_files};

/// A path that a comment cites, and the line of the text where it does.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    line: usize,
    path: String,
}

/// Checks the house; each finding is a sentence that starts with its place.
///
/// # Errors
/// When a source cannot be read. Untidiness is a finding, not an error.
pub(crate) fn check(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut functions = Vec::new();
    let mut files = BTreeSet::new();
    let mut reached = BTreeSet::new();
    for member in &house.members {
        files.extend(rust_files(&member.dir)?);
        for root in &member.roots {
            let found = reach(&root.file, &root.name.replace('-', "_"))?;
            reached.extend(found.files);
            functions.extend(found.functions);
            findings.extend(found.missing);
        }
    }
    let tests = Tests::of(&functions);
    for file in &files {
        let (shown, source) = (house.shown(file), Source::read(file)?);
        if !reached.contains(file) {
            findings.push(format!("{shown}: no `mod` line leads here; take it in or take it away"));
        }
        if !says_what_it_is(&source) {
            findings
                .push(format!("{shown}: starts without a `//!` paragraph that says what the file is for"));
        }
        for comment in &source.comments {
            findings.extend(tests.missing(&shown, comment.line, &comment.text));
        }
    }
    for page in pages(&house.root)? {
        let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        findings.extend(tests.missing(&house.shown(&page), 1, &text));
    }
    Ok(findings)
}

/// Every function of the workspace, to look citations up in.
#[derive(Debug)]
struct Tests<'a> {
    /// By last name, since that is what a citation is sure to have.
    by_name: BTreeMap<&'a str, Vec<&'a Function>>,
    /// Modules that hold a test, by their whole path, and those around them.
    modules: BTreeSet<&'a str>,
}

impl<'a> Tests<'a> {
    fn of(functions: &'a [Function]) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&Function>> = BTreeMap::new();
        for function in functions {
            by_name.entry(last_name(&function.path)).or_default().push(function);
        }
        let tests = functions.iter().filter(|function| function.is_test);
        let around = |function: &'a Function| {
            let path = function.path.as_str();
            path.match_indices("::").map(move |(end, _)| &path[..end])
        };
        Self { by_name, modules: tests.flat_map(around).collect() }
    }

    /// What the text (which starts at line `first_line` of its file) cites in vain.
    fn missing(&self, shown: &str, first_line: usize, text: &str) -> Vec<String> {
        let finding = |citation: Citation| {
            let (line, path) = (first_line + citation.line, &citation.path);
            let candidates = self.by_name.get(last_name(path)).map_or(&[][..], Vec::as_slice);
            let mut same = candidates.iter().filter(|function| ends_with(&function.path, path)).peekable();
            if same.peek().is_none() {
                if self.modules.iter().any(|module| ends_with(module, path)) {
                    return None;
                }
                let elsewhere: Vec<_> = candidates.iter().map(|function| function.path.as_str()).collect();
                let hint = match elsewhere.as_slice() {
                    [] => String::new(),
                    paths => format!("; meant may be {}", paths.join(" or ")),
                };
                return Some(format!("{shown}:{line}: cites `{path}`, which does not exist{hint}"));
            }
            let is_test = same.any(|function| function.is_test);
            (!is_test).then(|| format!("{shown}:{line}: cites `{path}`, which is a function but no test"))
        };
        citations(text).into_iter().filter_map(finding).collect()
    }
}

/// Whether the file opens with a `//!` paragraph.
fn says_what_it_is(source: &Source) -> bool {
    let first = source.text().lines().next().unwrap_or_default();
    first.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty())
}

/// The paths that a text cites; lines are counted from 0.
fn citations(text: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut goes_on = false;
    for (line, words) in text.lines().enumerate() {
        for word in words.split_whitespace() {
            let bare = word.trim_matches(|c: char| !(c.is_alphanumeric() || c == '_'));
            let opens = word.trim_start_matches(['(', '*', '`', '|']);
            if ["Model:", "Models:", "Test:", "Tests:"].contains(&opens) {
                goes_on = true;
            } else if goes_on && is_path(bare) {
                found.push(Citation { line, path: bare.to_owned() });
                // A sentence ends the list; a comma, or nothing before "and", lets it go on.
                goes_on = !word.ends_with(['.', ';', ')', '|']);
            } else if word != "and" && word != "," {
                goes_on = false;
            }
        }
    }
    found
}

/// A word that can only be a path: prose behind "Test:" is not one.
fn is_path(word: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    (word.contains("::") || word.contains('_')) && word.split("::").all(is_name)
}

fn last_name(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether `path` is the end of `whole`, name by name.
fn ends_with(whole: &str, path: &str) -> bool {
    whole.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// The pages for readers whose citations are held to the same.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("ARCHITECTURE.md")];
    pages.retain(|page| page.is_file());
    let docs = root.join("docs");
    if docs.is_dir() {
        for entry in fs::read_dir(&docs).with_context(|| format!("list {}", docs.display()))? {
            let path = entry.with_context(|| format!("list {}", docs.display()))?.path();
            if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{Member, Root, RootKind};

    /// A house of one crate with these files, in a folder that goes when the value does.
    struct Made(House);

    impl Made {
        fn of(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("evener-tidy-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let dir = root.join("crates/made");
            for (file, text) in files {
                let path = if file.ends_with(".md") { root.join(file) } else { dir.join(file) };
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let roots =
                [("made", "src/lib.rs", RootKind::Product), ("it", "tests/it/main.rs", RootKind::Proof)];
            let roots =
                roots.map(|(name, file, kind)| Root { name: name.into(), file: dir.join(file), kind });
            let roots = roots.into_iter().filter(|root| root.file.is_file()).collect();
            let member = Member { name: "made".into(), dir, deps: Vec::new(), roots };
            Self(House { target: root.join("target"), root, members: vec![member] })
        }

        fn findings(&self) -> Vec<String> {
            check(&self.0).unwrap()
        }

        fn only_finding(&self) -> String {
            let findings = self.findings();
            assert_eq!(findings.len(), 1, "{findings:#?}");
            findings[0].clone()
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.root);
        }
    }

    fn paths(text: &str) -> Vec<String> {
        citations(text).into_iter().map(|citation| citation.path).collect()
    }

    #[test]
    fn a_tidy_house_has_no_findings() {
        let made = Made::of(
            "tidy",
            &[
                ("src/lib.rs", "//! A crate.\n#[cfg(loom)]\nmod model;\nmod slot;\n"),
                (
                    "src/slot.rs",
                    "//! A slot.\n// Model: model::slot::no_wake_is_lost. Test: it::stress::holds.\nfn f() {}\n",
                ),
                ("src/model/mod.rs", "//! Models.\nmod slot;\n"),
                ("src/model/slot.rs", "//! The slot's model.\n#[test]\nfn no_wake_is_lost() {}\n"),
                ("tests/it/main.rs", "//! Promises.\nmod stress;\n"),
                ("tests/it/stress.rs", "//! Stress.\n#[test]\n#[ignore]\nfn holds() {}\n"),
                ("ARCHITECTURE.md", "| 1 | Model: `slot::no_wake_is_lost` |\n"),
            ],
        );
        assert_eq!(made.findings(), Vec::<String>::new());
    }

    #[test]
    fn a_citation_of_what_is_gone_is_found() {
        let made = Made::of(
            "gone",
            &[(
                "src/lib.rs",
                "//! A crate.\n\n/// Words.\n/// Model: model::slot::no_wake_is_lost.\nfn f() {}\n",
            )],
        );
        let finding = made.only_finding();
        assert!(
            finding.contains("lib.rs:4") && finding.contains("model::slot::no_wake_is_lost"),
            "{finding}"
        );
    }

    #[test]
    fn a_citation_with_the_wrong_module_is_found_and_helped() {
        let made = Made::of(
            "moved",
            &[(
                "src/lib.rs",
                "//! A crate.\n//! Test: slot::a_claim\nmod tests {\n#[test]\nfn a_claim() {}\n}\n",
            )],
        );
        assert!(made.only_finding().contains("made::tests::a_claim"), "{}", made.only_finding());
    }

    #[test]
    fn a_module_may_be_cited_when_it_holds_a_test() {
        let text = "//! A crate. Models: made::slot and made::empty.\nmod slot { #[test] fn a_claim() {} }\n\
                    mod empty { fn helper() {} }\n";
        let made = Made::of("module", &[("src/lib.rs", text)]);
        assert!(
            made.only_finding().contains("`made::empty`, which does not exist"),
            "{}",
            made.only_finding()
        );
    }

    #[test]
    fn a_citation_of_a_function_that_is_no_test_is_found() {
        let made = Made::of("no-test", &[("src/lib.rs", "//! A crate. Test: a_claim\nfn a_claim() {}\n")]);
        assert!(made.only_finding().contains("no test"), "{}", made.only_finding());
    }

    #[test]
    fn a_page_is_held_to_the_same() {
        let made = Made::of(
            "page",
            &[("src/lib.rs", "//! A crate.\n"), ("docs/a.md", "x\nTest: `no::such_test`.\n")],
        );
        assert!(made.only_finding().contains("docs/a.md:2"), "{}", made.only_finding());
    }

    #[test]
    fn a_dead_file_is_found() {
        let made =
            Made::of("dead", &[("src/lib.rs", "//! A crate.\n// mod old;\n"), ("src/old.rs", "//! Old.\n")]);
        assert!(made.only_finding().contains("old.rs: no `mod` line"), "{}", made.only_finding());
    }

    #[test]
    fn a_module_without_a_file_is_found() {
        let made = Made::of("missing", &[("src/lib.rs", "//! A crate.\nmod nowhere;\n")]);
        assert!(made.only_finding().contains("`mod nowhere` has no file"), "{}", made.only_finding());
    }

    #[test]
    fn files_are_reached_through_folders_paths_and_inline_modules() {
        let made = Made::of(
            "ways",
            &[
                ("src/lib.rs", "//! A crate.\nmod a;\nmod b { mod c; }\n#[path = \"odd name.rs\"]\nmod d;\n"),
                ("src/a.rs", "//! A.\nmod deep;\n"),
                ("src/a/deep.rs", "//! Deep.\ninclude!(\"table.rs\");\n"),
                ("src/a/table.rs", "//! Table.\n"),
                ("src/b/c.rs", "//! C.\n"),
                ("src/odd name.rs", "//! Odd.\n"),
            ],
        );
        assert_eq!(made.findings(), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_is_found() {
        for text in ["fn f() {}\n", "//!\nfn f() {}\n", "", "// A crate.\n", "\n//! Late.\n"] {
            let made = Made::of("silent", &[("src/lib.rs", text)]);
            assert!(made.only_finding().contains("`//!` paragraph"), "{text:?}");
        }
    }

    #[test]
    fn lists_are_read_to_their_end_and_prose_is_left_alone() {
        assert_eq!(paths("see it. Models: a::b, a::c_d\nand `e::f`. Then g::h."), ["a::b", "a::c_d", "e::f"]);
        assert_eq!(paths("Test: the last poller blocks in x::y"), Vec::<String>::new());
        assert_eq!(paths("| Model: `a::b` | Test: `c_d` |"), ["a::b", "c_d"]);
        assert_eq!(paths("(Model: a::b) c::d"), ["a::b"]);
        assert_eq!(paths("the Model: trait"), Vec::<String>::new());
    }

    #[test]
    fn the_end_of_a_path_means_whole_names() {
        assert!(ends_with("k::slot::holds", "slot::holds") && ends_with("k::holds", "k::holds"));
        assert!(!ends_with("k::a_slot::holds", "slot::holds"));
    }
}

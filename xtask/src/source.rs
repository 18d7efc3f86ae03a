//! Reads Rust source as far as the checks need it: code apart from comments and strings, the tests
//! by their path, and which files the `mod` lines reach.
//!
//! No parser crate: syn drops comments, which are half of what is looked at here, and a file that
//! does not parse is the compiler's business, not ours.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A source text, taken apart.
#[derive(Debug)]
pub(crate) struct Source {
    text: String,
    /// The text with comments and the inside of strings turned to spaces; as long as the text.
    code: String,
    /// Comments, neighbouring line comments as one.
    pub(crate) comments: Vec<Comment>,
}

/// A comment without its markers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    /// Where it starts, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A name in the code, or a single character that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Name(&'a str),
    Sign(char),
}

/// A function with its path from the crate root on: `evener_scheduler::model::slot::no_wake_is_lost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) path: String,
    pub(crate) is_test: bool,
}

/// What is reached from one crate root.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) files: BTreeSet<PathBuf>,
    pub(crate) functions: Vec<Function>,
    /// `mod` lines without a file, each as a sentence.
    pub(crate) missing: Vec<String>,
}

/// Where a `mod` or `include` line points.
#[derive(Debug)]
enum Link {
    /// Module path below the file's own module, the innermost name last, and `#[path]` if given.
    Module { names: Vec<String>, path: Option<String> },
    /// A file that is taken in as it stands, relative to the folder of this one.
    Include(String),
}

impl Source {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self::of(text))
    }

    /// Takes a text apart.
    pub(crate) fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        let (code, comments) = split(&text);
        Self { text, code, comments }
    }

    /// The text as it stands in the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Line, counted from 1, of a byte of the text.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// Names and signs of the code, each with its place in the text.
    pub(crate) fn tokens(&self) -> Vec<(usize, Token<'_>)> {
        let mut tokens = Vec::new();
        let mut chars = self.code.char_indices().peekable();
        while let Some((start, c)) = chars.next() {
            if c.is_alphanumeric() || c == '_' {
                let mut end = start + c.len_utf8();
                while let Some(&(at, next)) = chars.peek() {
                    if !(next.is_alphanumeric() || next == '_') {
                        break;
                    }
                    end = at + next.len_utf8();
                    chars.next();
                }
                tokens.push((start, Token::Name(&self.code[start..end])));
            } else if !c.is_whitespace() {
                tokens.push((start, Token::Sign(c)));
            }
        }
        tokens
    }

    /// Lines on which the keyword or name stands in the code.
    pub(crate) fn lines_with(&self, name: &str) -> Vec<usize> {
        let places = self.tokens().into_iter().filter(|(_, token)| *token == Token::Name(name));
        places.map(|(offset, _)| self.line_of(offset)).collect()
    }

    /// Lines that reach for the outside crate `name`: `name::..`, `use name`, `extern crate name`.
    /// A module of our own of that name (`self::name`, `crate::name`) is not meant.
    pub(crate) fn lines_reaching_for(&self, name: &str) -> Vec<usize> {
        let tokens = self.tokens();
        let at = |index: Option<usize>| index.and_then(|index| tokens.get(index)).map(|(_, token)| *token);
        let mut lines = Vec::new();
        for (index, (offset, token)) in tokens.iter().enumerate() {
            if *token != Token::Name(name) {
                continue;
            }
            let before = at(index.checked_sub(1));
            let follows_colons =
                before == Some(Token::Sign(':')) && at(index.checked_sub(2)) == Some(Token::Sign(':'));
            // `::name` at the start of a path is the outside crate; `x::name` is something within x.
            let within = follows_colons
                && matches!(at(index.checked_sub(3)), Some(Token::Name(owner)) if owner != "use");
            let opens_path = at(Some(index + 1)) == Some(Token::Sign(':'))
                && at(Some(index + 2)) == Some(Token::Sign(':'));
            let is_taken = matches!(before, Some(Token::Name("use" | "crate")));
            if !within && (opens_path || is_taken) {
                lines.push(self.line_of(*offset));
            }
        }
        lines
    }

    /// The functions of this file and the files that it links to, `module` being its own path.
    fn outline(&self, module: &str) -> (Vec<Function>, Vec<Link>) {
        let tokens = self.tokens();
        let (mut functions, mut links) = (Vec::new(), Vec::new());
        // Inline modules that are open, each with the depth of braces outside it.
        let mut open: Vec<(String, usize)> = Vec::new();
        let mut depth = 0;
        let (mut is_test, mut path) = (false, None);
        let mut index = 0;
        while let Some(&(offset, token)) = tokens.get(index) {
            let next = tokens.get(index + 1).map(|(_, token)| *token);
            let after = tokens.get(index + 2).map(|(_, token)| *token);
            match (token, next, after) {
                (Token::Sign('#'), Some(Token::Sign('[')), _) => {
                    let end = closing(&tokens, index + 1);
                    let inside = &tokens[index + 2..end];
                    let head: Vec<_> =
                        inside.iter().take_while(|(_, token)| *token != Token::Sign('(')).collect();
                    is_test |= head.last().is_some_and(|(_, token)| *token == Token::Name("test"));
                    if inside.first().is_some_and(|(_, token)| *token == Token::Name("path")) {
                        path = self.string_after(offset);
                    }
                    index = end;
                }
                (Token::Name("mod"), Some(Token::Name(name)), Some(Token::Sign(';'))) => {
                    let names = open.iter().map(|(name, _)| name.clone()).chain([name.to_owned()]).collect();
                    links.push(Link::Module { names, path: path.take() });
                    is_test = false;
                    index += 2;
                }
                (Token::Name("mod"), Some(Token::Name(name)), Some(Token::Sign('{'))) => {
                    open.push((name.to_owned(), depth));
                    depth += 1;
                    (is_test, path) = (false, None);
                    index += 2;
                }
                (Token::Name("fn"), Some(Token::Name(name)), _) => {
                    let names = [module].into_iter().chain(open.iter().map(|(name, _)| name.as_str()));
                    let path: Vec<&str> = names.chain([name]).collect();
                    functions.push(Function { path: path.join("::"), is_test });
                    is_test = false;
                    index += 1;
                }
                (Token::Name("include" | "include_str"), Some(Token::Sign('!')), _) => {
                    links.extend(self.string_after(offset).map(Link::Include));
                }
                (Token::Sign('{'), ..) => depth += 1,
                (Token::Sign('}'), ..) => {
                    depth = depth.saturating_sub(1);
                    if open.last().is_some_and(|(_, outside)| *outside == depth) {
                        open.pop();
                    }
                    (is_test, path) = (false, None);
                }
                (Token::Sign(';'), ..) => (is_test, path) = (false, None),
                _ => {}
            }
            index += 1;
        }
        (functions, links)
    }

    /// The first string literal at or behind a place, without escapes.
    fn string_after(&self, offset: usize) -> Option<String> {
        let open = offset + self.code[offset..].find('"')?;
        let close = open + 1 + self.code[open + 1..].find('"')?;
        Some(self.text[open + 1..close].to_owned())
    }
}

/// Follows the `mod` lines from a crate root; `name` is the crate's.
///
/// # Errors
/// When a file that is there cannot be read. A file that is not there is in [`Reached::missing`].
pub(crate) fn reach(root: &Path, name: &str) -> Result<Reached> {
    let mut reached = Reached::default();
    // File, its module path, the folder where its child modules lie.
    let mut todo = vec![(root.to_owned(), name.to_owned(), folder(root))];
    while let Some((file, module, children)) = todo.pop() {
        if !reached.files.insert(file.clone()) {
            continue;
        }
        let (functions, links) = Source::read(&file)?.outline(&module);
        reached.functions.extend(functions);
        for link in links {
            match link {
                Link::Include(relative) => {
                    let included = folder(&file).join(relative);
                    if included.extension().is_some_and(|ending| ending == "rs") && included.is_file() {
                        todo.push((included.clone(), module.clone(), folder(&included)));
                    }
                }
                Link::Module { names, path } => {
                    let within = format!("{module}::{}", names.join("::"));
                    let (last, outer) = names.split_last().expect("a module has a name");
                    let home = outer.iter().fold(children.clone(), |dir, name| dir.join(name));
                    let flat = home.join(format!("{last}.rs"));
                    let deep = home.join(last).join("mod.rs");
                    let given = path.map(|path| folder(&file).join(path));
                    if let Some(given) = given.filter(|given| given.is_file()) {
                        todo.push((given.clone(), within, folder(&given)));
                    } else if flat.is_file() {
                        todo.push((flat, within, home.join(last)));
                    } else if deep.is_file() {
                        todo.push((deep, within, home.join(last)));
                    } else {
                        reached.missing.push(format!("{}: `mod {last}` has no file", file.display()));
                    }
                }
            }
        }
    }
    Ok(reached)
}

/// Every `.rs` file below a folder, but not in `target`, hidden folders or packages within it.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).with_context(|| format!("list {}", at.display()))? {
            let path = entry.with_context(|| format!("list {}", at.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let is_left_out =
                    name.starts_with('.') || name == "target" || path.join("Cargo.toml").is_file();
                if !is_left_out {
                    todo.push(path);
                }
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn folder(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_owned()
}

/// Index of the bracket that closes the one at `open`, or of the last token.
fn closing(tokens: &[(usize, Token<'_>)], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, (_, token)) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign('[') => depth += 1,
            Token::Sign(']') if depth == 1 => return index,
            Token::Sign(']') => depth -= 1,
            _ => {}
        }
    }
    tokens.len() - 1
}

/// Code (comments and the inside of literals blanked, byte for byte) and comments.
fn split(text: &str) -> (String, Vec<Comment>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut comments: Vec<Comment> = Vec::new();
    let mut line = 1;
    let mut at = 0;
    // Where the last line comment ended, so that the next line goes on with it.
    let mut line_comment_end = None;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => {
                let end = find(bytes, at, b"\n").unwrap_or(bytes.len());
                let words = text[at..end].trim_start_matches('/').trim_start_matches('!').to_owned();
                match (line_comment_end, comments.last_mut()) {
                    (Some(previous), Some(last))
                        if text[previous..at].trim().is_empty()
                            && text[previous..at].matches('\n').count() == 1 =>
                    {
                        last.text.push('\n');
                        last.text.push_str(&words);
                    }
                    _ => comments.push(Comment { line, text: words }),
                }
                line_comment_end = Some(end);
                blank(&mut code[at..end]);
                end
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                let end = block_comment_end(bytes, at);
                let inside = text.get(at + 2..end.saturating_sub(2)).unwrap_or_default();
                comments.push(Comment { line, text: inside.trim_start_matches(['*', '!']).to_owned() });
                blank(&mut code[at..end]);
                end
            }
            b'"' => {
                let end = string_end(bytes, at);
                blank_inside(&mut code[at..end], 1);
                end
            }
            b'r' if !follows_name(bytes, at) || is_literal_prefix(bytes, at) => match raw_string(bytes, at) {
                Some((start, end, hashes)) => {
                    blank_inside(&mut code[start..end], 1 + hashes);
                    end
                }
                None => at + 1,
            },
            b'\'' => match char_end(text, at) {
                Some(end) => {
                    blank(&mut code[at..end]);
                    end
                }
                None => at + 1,
            },
            _ => at + 1,
        };
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    (String::from_utf8(code).expect("only whole literals and comments were blanked"), comments)
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes[from..].windows(what.len()).position(|window| window == what).map(|found| from + found)
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn blank_inside(bytes: &mut [u8], quote_len: usize) {
    let len = bytes.len();
    if len > 2 * quote_len {
        blank(&mut bytes[quote_len..len - quote_len]);
    }
}

fn follows_name(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The `r` of `br".."` or `cr".."`: the letter before it starts a name that is only this letter.
fn is_literal_prefix(bytes: &[u8], at: usize) -> bool {
    at > 0 && matches!(bytes[at - 1], b'b' | b'c') && !follows_name(bytes, at - 1)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Opening `#` or quote, end, and number of `#` of a raw string that starts at `r`; `r#name` is none.
fn raw_string(bytes: &[u8], start: usize) -> Option<(usize, usize, usize)> {
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let quote = start + 1 + hashes;
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let end = find(bytes, quote + 1, &close).map_or(bytes.len(), |found| found + close.len());
    Some((start + 1, end, hashes))
}

/// End of a character literal; `None` for a lifetime or label.
fn char_end(text: &str, start: usize) -> Option<usize> {
    let mut chars = text[start + 1..].char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        let (close, _) = chars.find(|(_, c)| *c == '\'')?;
        return Some(start + 1 + close + 1);
    }
    match chars.next()? {
        (close, '\'') => Some(start + 1 + close + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_strings_are_no_code() {
        let source = Source::of(
            "// unsafe\n/* unsafe /* unsafe */ */ let a = \"unsafe \\\" unsafe\";\n\
             let b = r#\"unsafe \" unsafe\"#; let c = br\"unsafe\"; let d = 'u';\n\
             fn f<'unsafe_>(x: &'unsafe_ str) { let q = '\\''; let r#type = '\"'; unsafe { g() } }",
        );
        assert_eq!(source.lines_with("unsafe"), [4]);
    }

    #[test]
    fn neighbouring_line_comments_are_one() {
        let source = Source::of("// one\n  // two\n\n/// three\nlet x = 1; // four\n");
        let found: Vec<_> = source.comments.iter().map(|c| (c.line, c.text.as_str())).collect();
        assert_eq!(found, [(1, " one\n two"), (4, " three"), (5, " four")]);
    }

    #[test]
    fn an_outside_crate_is_told_from_a_module_of_that_name() {
        let source = Source::of(
            "use postgres::Client;\nuse self::postgres::Store;\nlet a = crate::postgres::open();\n\
             let b = ::postgres::open();\nextern crate postgres;\nlet postgres = 1;\nuse postgres as p;\n",
        );
        assert_eq!(source.lines_reaching_for("postgres"), [1, 4, 5, 7]);
    }

    #[test]
    fn functions_carry_their_modules_and_whether_they_are_tests() {
        let source = Source::of(
            "fn plain() { if x { y() } }\n#[cfg(test)]\nmod tests {\n  #[test]\n  #[should_panic(expected = \"]\")]\n  \
             fn a_claim() {}\n  fn helper() {}\n  mod inner { #[tokio::test] async fn deep() {} }\n}\n\
             proptest! { #[test] fn any_order(x in 0..3) {} }\nfn last() {}",
        );
        let (functions, _) = source.outline("k");
        let found: Vec<_> = functions.iter().map(|f| (f.path.as_str(), f.is_test)).collect();
        assert_eq!(
            found,
            [
                ("k::plain", false),
                ("k::tests::a_claim", true),
                ("k::tests::helper", false),
                ("k::tests::inner::deep", true),
                ("k::any_order", true),
                ("k::last", false),
            ]
        );
    }

    #[test]
    fn cfg_test_on_a_function_makes_it_no_test() {
        let (functions, _) = Source::of("#[cfg(test)] fn helper() {}").outline("k");
        assert!(!functions[0].is_test);
    }
}

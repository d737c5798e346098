//! The meaning of words in a query: which words carry little, which name an action, and which stand for
//! others.
//!
//! The lists are our own: short, and made of common knowledge.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::tokens::Stems;

/// Words of grammar, which carry nothing in a long query.
const STOP: &str = "a an the and or but if then than of to in on at by for with from into onto about as is are was were \
    be been being am do does did done doing have has had having i me my mine myself we us our ours you \
    your yours he him his she her hers it its they them their theirs this that these those there here \
    what which who whom whose when where why how can could will would shall should may might must not no \
    nor so too very just only also please up out over under again more most some any all each every both \
    few other such own same s t d ll m re ve don isn aren doesn didn won wouldn couldn shouldn wasn \
    weren hasn haven let's without within";

/// Words that people wrap around any request.
const TALK: &str = "hi hello hey dear thanks thank help helps helping need needs needed want wants wanted like wish love \
    looking look seeking interested interest planning plan plans friend friends family colleague boss \
    brother sister mom dad wife husband partner provide provides providing give gives giving tell know \
    let sure assist assistance additionally furthermore moreover besides currently possible possibly \
    able great helpful appreciate kindly specific specifically using use uses used utilize based related \
    relevant regarding concerning etc working going trying try wondering curious lastly finally firstly \
    secondly first second third next afterwards well really quite exactly actually basically definitely \
    especially particularly particular certain various different several multiple many much lot lots \
    detailed details detail comprehensive thorough complete entire whole best better good nice perfect \
    ideal suitable appropriate proper interesting important useful effective efficient efficiently \
    easily easy quick quickly fast new latest recent recently now today soon upcoming available \
    availability information info make makes made making take takes taking get gets getting got see say \
    said says come came become think thinking thought feel idea ideas way ways thing things something anything \
    everything someone anyone everyone people person one ones two three including include includes \
    included ensure ensuring understand understanding explain describe discuss share obtain gain \
    involving involved require required requires requirements necessary potential exciting fun enjoy \
    enjoying perform carry organizing hosting preparing recommend recommendations recommendation suggest \
    suggestions suggestion options option choose chatgpt chatbot assistant ai bot guys hope question \
    questions ask asking wonder imagine suppose decided considering consider heard keep stay away back \
    around still yet already always never ever often usually sometimes since while during before after \
    until because though however whether either neither even rather instead otherwise thus therefore \
    hence right left";

/// What a tool does to the things that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    Make,
    Change,
    Remove,
}

/// The verbs of each deed, and other words by which people ask for it.
const DEEDS: [(Deed, &str); 4] = [
    (
        Deed::Read,
        "get list read show view fetch find search see retrieve display check query count describe print lookup \
         browse inspect return returns what which who when where how",
    ),
    (
        Deed::Make,
        "create add make new write insert save store append send post reply publish submit forward upload",
    ),
    (Deed::Change, "update edit change modify rename set patch move replace"),
    (Deed::Remove, "delete remove erase drop destroy purge clear wipe trash unlink forget"),
];

/// The deed that the stem of a verb stands for.
pub(super) fn deed(stem: &str) -> Option<Deed> {
    static STEMS: OnceLock<HashMap<String, Deed>> = OnceLock::new();
    let table = || {
        let stems = Stems::new();
        let verbs =
            DEEDS.iter().flat_map(|(deed, verbs)| verbs.split_whitespace().map(move |verb| (verb, *deed)));
        verbs.map(|(verb, deed)| (stems.stem(verb), deed)).collect()
    };
    STEMS.get_or_init(table).get(stem).copied()
}

/// Groups of words that people use for one another. `left > right` means that a tool described with a word on
/// the right may serve somebody who uses a word on the left.
const THESAURUS: &str = include_str!("thesaurus.txt");

/// Whether a word is grammar ([`STOP`]).
pub(super) fn is_stop(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&str>> = OnceLock::new();
    WORDS.get_or_init(|| STOP.split_whitespace().collect()).contains(word)
}

/// Whether a word only wraps a request ([`TALK`]).
pub(super) fn is_talk(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&str>> = OnceLock::new();
    WORDS.get_or_init(|| TALK.split_whitespace().collect()).contains(word)
}

/// The stems that may stand for a stem. The flag says whether a stem is a synonym; otherwise it is only
/// related.
pub(super) fn of(stem: &str) -> &'static [(String, bool)] {
    static TABLE: OnceLock<HashMap<String, Vec<(String, bool)>>> = OnceLock::new();
    TABLE.get_or_init(table).get(stem).map_or(&[], Vec::as_slice)
}

fn table() -> HashMap<String, Vec<(String, bool)>> {
    let stems = Stems::new();
    let mut table: HashMap<String, Vec<(String, bool)>> = HashMap::new();
    for line in THESAURUS.lines() {
        let (left, right) = line.split_once('>').unwrap_or((line, line));
        let same = left == right;
        let right: Vec<String> = right.split_whitespace().map(|word| stems.stem(word)).collect();
        for word in left.split_whitespace().map(|word| stems.stem(word)) {
            let entry = table.entry(word.clone()).or_default();
            for other in &right {
                match entry.iter_mut().find(|known| known.0 == *other) {
                    _ if *other == word => {}
                    Some(known) => known.1 |= same,
                    None => entry.push((other.clone(), same)),
                }
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, other: &str, expected: Option<bool>) {
        let stems = Stems::new();
        let other = stems.stem(other);
        let found = of(&stems.stem(word)).iter().find(|known| known.0 == other).map(|known| known.1);
        assert_eq!(found, expected, "{word}, {other}");
    }

    #[test]
    fn words_stand_for_others() {
        check("movies", "film", Some(true));
        check("film", "movie", Some(true));
        check("bitcoin", "crypto", Some(false));
        check("crypto", "bitcoin", None);
        check("film", "film", None);
    }

    #[test]
    fn no_word_is_both_grammar_and_talk() {
        let both: Vec<&str> = TALK.split_whitespace().filter(|word| is_stop(word)).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}

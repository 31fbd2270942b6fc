//! Banned words: one list for comments, strings, `--help`, documents and configurations.

use super::pieces::Kind;

/// Persons instead of roles.
const PERSONS: &[&str] = &[
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "no one",
    "whoever",
    "whatever",
];

/// Verbs of speech for the flow of data.
const SPEECH: &[&str] = &["tell", "tells", "told", "telling", "say", "says", "said", "saying"];

/// Verbs of speech and idioms that name no value, function or type. (`say` is a field of the plugin interface.)
pub(crate) const NAMES: &[&str] = &[
    "tell", "tells", "told", "telling", "teller", "tellers", "says", "said", "saying", "stands", "stood",
    "standing",
];

/// Idioms in the place of a verb.
const IDIOMS: &[&str] = &[
    "stand",
    "stands",
    "stood",
    "standing",
    "come to",
    "comes to",
    "came to",
    "through with",
    "let go",
    "lets go",
    "letting go",
    "look at",
    "looks at",
    "looked at",
    "looking at",
    "a look",
    "none of its",
    "it be",
];

/// Quantities without numbers.
const QUANTITIES: &[&str] =
    &["so many", "so often", "so much", "some dozens", "some tens", "some hundred", "some thousand"];

/// Metaphors in the place of the field's terms.
const METAPHORS: &[&str] = &[
    "the outside",
    "from outside",
    "outsider",
    "outsiders",
    "crew",
    "shop",
    "desk",
    "desks",
    "shelf",
    "shelves",
    "shelved",
    "errand",
    "errands",
    "hall",
    "sight",
    "sights",
    "glance",
    "glances",
    "absolve",
    "absolves",
    "absolved",
    "whereabouts",
    "ledger's",
];

/// A message names its object, then the problem.
const MESSAGES: &[&str] =
    &["is none", "are none", "says nothing", "has another", "there is no such", "have it"];

/// The banned words with which `words` begins. A quotation may follow *say*: a message says "no such file".
pub(crate) fn banned(words: &[super::sentences::Word<'_>], kind: Kind) -> Option<&'static str> {
    let begins = |banned: &&str| {
        let mut words = words.iter();
        banned.split(' ').all(|part| words.next().is_some_and(|word| word.plain == part))
    };
    let quotes = words.get(1).is_some_and(|word| word.text.starts_with(['"', '\'', '`']));
    let speech = SPEECH.iter().filter(|word| !(word.starts_with("sa") && quotes));
    let messages = MESSAGES.iter().filter(|_| kind == Kind::String);
    let lists = [PERSONS, IDIOMS, QUANTITIES, METAPHORS].into_iter().flatten();
    lists.chain(messages).chain(speech).copied().find(begins)
}

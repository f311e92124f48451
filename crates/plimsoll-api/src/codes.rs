//! Closed lists of words: one line each for the word, what it means and what to do about it. A word without any of them does
//! not compile, so the reference that is printed from these lists is whole.

/// Declares an enum of words, in groups. The doc comment of a variant is its meaning, as people read it in the reference.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(
                $group:literal:
                $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal => $advice:literal,)+
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($($(#[doc = $meaning])+ $variant,)+)+
            /// A word that this version does not know: a newer node sent it. The text beside it says what it is about.
            #[serde(other)]
            Unknown,
        }

        impl $name {
            /// Every word that this version knows.
            pub const ALL: &[Self] = &[$($(Self::$variant),+),+];

            /// What it is about, as the reference groups them.
            pub fn group(self) -> &'static str {
                match self {
                    $($(Self::$variant)|+ => $group,)+
                    Self::Unknown => "Unknown",
                }
            }

            pub fn word(self) -> &'static str {
                match self {
                    $($(Self::$variant => $word,)+)+
                    Self::Unknown => "unknown",
                }
            }

            /// In one or two sentences.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($(Self::$variant => concat!($($meaning),+).trim_ascii_start(),)+)+
                    Self::Unknown => "A newer node sent a word that this version does not know.",
                }
            }

            /// What to do about it; none where it passes by itself. `REPLICA`, `SERVICE`, `DEPLOYMENT` and `NODE` stand
            /// for what it is about.
            pub fn advice(self) -> Option<&'static str> {
                let advice = match self {
                    $($(Self::$variant => $advice,)+)+
                    Self::Unknown => "",
                };
                (!advice.is_empty()).then_some(advice)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

pub(crate) use codes;

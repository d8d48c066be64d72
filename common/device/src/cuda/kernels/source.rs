//! The CUDA sources, and how they are compiled.

/// Options of the run-time compiler other than the architecture (`-arch=sm_90`).
pub const OPTIONS: [&str; 3] = ["-std=c++17", "-fmad=false", "-default-device"];

/// Defines [`Source`] by its members and their files.
macro_rules! sources {
    ($($(#[$doc:meta])* $source:ident = $file:literal;)+) => {
        /// A file of kernels, compiled as one program.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Source {
            $($(#[$doc])* $source,)+
        }

        impl Source {
            /// Every source.
            pub const ALL: [Source; [$($file),+].len()] = [$(Source::$source),+];

            /// Returns the file's name and text.
            const fn file(self) -> (&'static str, &'static str) {
                match self {
                    $(Source::$source => ($file, include_str!($file)),)+
                }
            }
        }
    };
}

sources! {
    /// Addition, conversion, filling.
    Elementwise = "elementwise.cu";
    /// AdamW on a flat shard.
    Adamw = "adamw.cu";
    /// Root-mean-square normalisation.
    Norm = "norm.cu";
    /// Rotary position embedding.
    Rope = "rope.cu";
    /// The gated activation.
    Swiglu = "swiglu.cu";
    /// Table look-up and its gradient.
    Embedding = "embedding.cu";
    /// Cross-entropy and its gradient.
    CrossEntropy = "cross_entropy.cu";
    /// Maxima, and sums in fixed point.
    Reduction = "reduction.cu";
    /// The softmax between two matrix products.
    Softmax = "softmax.cu";
    /// Tiled attention for any type and width of head.
    Attention = "attention.cu";
    /// Tiled attention on tensor cores.
    AttentionMma = "attention_mma.cu";
    /// Its forward pass by products of warpgroups.
    AttentionWgmma = "attention_wgmma.cu";
    /// Its backward pass by products of warpgroups.
    AttentionWgmmaBackward = "attention_wgmma_backward.cu";
    /// Sums over ranks.
    TreeSum = "tree_sum.cu";
}

/// The headers that `#include` finds.
const HEADERS: [(&str, &str); 10] = [
    ("types.cuh", include_str!("types.cuh")),
    ("block.cuh", include_str!("block.cuh")),
    ("attention.cuh", include_str!("attention.cuh")),
    ("attention_backward.cuh", include_str!("attention_backward.cuh")),
    ("math.cuh", include_str!("math.cuh")),
    ("mma.cuh", include_str!("mma.cuh")),
    ("online_softmax.cuh", include_str!("online_softmax.cuh")),
    ("tile.cuh", include_str!("tile.cuh")),
    ("warpgroup.cuh", include_str!("warpgroup.cuh")),
    ("warpgroup_tile.cuh", include_str!("warpgroup_tile.cuh")),
];

impl Source {
    /// Returns the file's name.
    pub const fn name(self) -> &'static str {
        self.file().0
    }

    /// Returns the source with its headers in it: all that the compiler needs.
    pub fn text(self) -> String {
        let (name, text) = self.file();
        let mut included = Vec::new();
        expand(name, text, &mut included)
    }
}

/// `text` with each `#include` replaced by the header's own expansion the first time, and dropped
/// afterwards.
fn expand(name: &str, text: &str, included: &mut Vec<&'static str>) -> String {
    let mut out = format!("#line 1 \"{name}\"\n");
    for (number, line) in text.lines().enumerate() {
        let header = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        let known = header.and_then(|header| HEADERS.iter().find(|(name, _)| *name == header));
        match known {
            Some((header, _)) if included.contains(header) => out.push('\n'),
            Some((header, body)) => {
                included.push(header);
                out += &expand(header, body, included);
                out += &format!("#line {} \"{name}\"\n", number + 2);
            }
            None => out += &format!("{line}\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_in_order_and_each_header_stands_once() {
        for (at, source) in Source::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, at, "modules are found by their source's number");
            let text = source.text();
            assert!(!text.contains("#include"), "{}", source.name());
            for (header, _) in HEADERS {
                assert!(text.matches(&format!("#line 1 \"{header}\"")).count() <= 1, "{}", source.name());
            }
        }
    }
}

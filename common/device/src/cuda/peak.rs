//! Peaks from NVIDIA's data sheets: the denominators of MFU.

use super::gpu::GpuInfo;

/// The operand types of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// f32, multiplied as such.
    F32,
    /// f32, rounded to TF32.
    Tf32,
    /// bf16 or f16.
    SixteenBit,
}

/// TFLOP/s of a model of GPU, dense, with sums in f32.
struct DataSheet {
    /// Words that its name must contain, all of them.
    words: &'static [&'static str],
    f32: f64,
    /// 0 where there are no tensor cores for it.
    tf32: f64,
    sixteen_bit: f64,
}

const fn sheet(words: &'static [&'static str], f32: f64, tf32: f64, sixteen_bit: f64) -> DataSheet {
    DataSheet { words, f32, tf32, sixteen_bit }
}

/// Entries with more words come before those with fewer.
const DATA_SHEETS: [DataSheet; 13] = [
    sheet(&["H100", "PCIe"], 51.2, 378.0, 756.0),
    sheet(&["H100", "NVL"], 60.0, 417.5, 835.5),
    sheet(&["H200", "NVL"], 60.0, 417.5, 835.5),
    sheet(&["H100"], 66.9, 494.7, 989.4),
    sheet(&["H200"], 66.9, 494.7, 989.4),
    sheet(&["B200"], 75.0, 1125.0, 2250.0),
    sheet(&["A100"], 19.5, 156.0, 312.0),
    sheet(&["A30"], 10.3, 82.0, 165.0),
    sheet(&["A10"], 31.2, 62.5, 125.0),
    sheet(&["L40S"], 91.6, 183.0, 362.0),
    sheet(&["L40"], 90.5, 90.5, 181.0),
    sheet(&["L4"], 30.3, 60.0, 121.0),
    sheet(&["T4"], 8.1, 0.0, 65.0),
];

impl GpuInfo {
    /// Returns the TFLOP/s that its data sheet promises for dense products of `operands`; `None`
    /// for a GPU whose data sheet is not known here.
    pub fn peak(&self, operands: Operands) -> Option<f64> {
        let words: Vec<&str> = self.name.split([' ', '-']).collect();
        // A slice of a GPU has a part of its peak.
        if words.contains(&"MIG") {
            return None;
        }
        let sheet = DATA_SHEETS.iter().find(|sheet| sheet.words.iter().all(|word| words.contains(word)))?;
        let peak = match operands {
            Operands::F32 => sheet.f32,
            Operands::Tf32 => sheet.tf32,
            Operands::SixteenBit => sheet.sixteen_bit,
        };
        (peak > 0.0).then_some(peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(name: &str, operands: Operands) -> Option<f64> {
        let gpu = GpuInfo {
            ordinal: 0,
            name: name.into(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 1 << 36,
            uuid: [0; 16],
        };
        gpu.peak(operands)
    }

    #[test]
    fn peaks_go_by_the_whole_words_of_a_name() {
        assert_eq!(peak("NVIDIA H100 80GB HBM3", Operands::SixteenBit), Some(989.4));
        assert_eq!(peak("NVIDIA H100 PCIe", Operands::SixteenBit), Some(756.0));
        assert_eq!(peak("NVIDIA H200", Operands::F32), Some(66.9));
        assert_eq!(peak("NVIDIA A100-SXM4-80GB", Operands::Tf32), Some(156.0));
        assert_eq!(peak("NVIDIA L40S", Operands::SixteenBit), Some(362.0));
        assert_eq!(peak("NVIDIA A10G", Operands::SixteenBit), None, "another GPU than the A10");
        assert_eq!(peak("NVIDIA A100-SXM4-80GB MIG 1g.10gb", Operands::SixteenBit), None);
        assert_eq!(peak("Tesla T4", Operands::Tf32), None, "it has no TF32");
    }
}

//! Where a training step's time goes on this CPU: every kernel at the presets' shapes, for one rank
//! and one micro-batch.
//!
//! `cargo bench -p device --bench kernels [-- f32|bf16|f16 [threads [preset]]]`

use device::{
    AdamW, AdamWUpdate, Attention, AttentionBackward, AttentionShape, Buffer, Class, CrossEntropy, DType,
    Device, DeviceError, Embedding, EmbeddingBackward, Kernels, Ledger, Matrix, RmsNorm, RmsNormBackward,
    Rope, RopeScaling, RowShape, Swiglu, SwigluBackward, Write, matmul_peak, multiply_add_peak,
};
use events::Emitter;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, DeviceError>;

struct Preset {
    name: &'static str,
    width: usize,
    layers: usize,
    heads: usize,
    hidden: usize,
    tokens: usize,
    batch: usize,
}

const VOCABULARY: usize = 256;

const PRESETS: [Preset; 3] = [
    Preset { name: "tiny", width: 128, layers: 4, heads: 4, hidden: 384, tokens: 128, batch: 8 },
    Preset { name: "small", width: 384, layers: 6, heads: 6, hidden: 1024, tokens: 256, batch: 8 },
    Preset { name: "base", width: 768, layers: 12, heads: 12, hidden: 2048, tokens: 256, batch: 4 },
];

/// Shortest time of several calls, within a tenth of a second.
fn time(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let begin = Instant::now();
    let mut shortest = f64::INFINITY;
    while begin.elapsed() < Duration::from_millis(100) {
        let start = Instant::now();
        call()?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    Ok(shortest)
}

/// Adds up a preset's step and prints it line by line.
struct Table {
    matmul: f64,
    other: f64,
}

impl Table {
    /// One kernel: seconds per call, calls per step, and GFLOP or GB per call.
    fn row(&mut self, name: &str, seconds: f64, calls: usize, amount: f64, unit: &str) {
        let total = seconds * calls as f64;
        let rate = amount / 1e9 / seconds;
        println!(
            "  {name:<28} {:>9.4} ms × {calls:>3} = {:>8.3} ms   {rate:>7.1} {unit}",
            1e3 * seconds,
            1e3 * total
        );
        if unit == "GFLOP/s" && name.contains('×') { self.matmul += total } else { self.other += total }
    }
}

struct Bench {
    device: Device,
    dtype: DType,
}

impl Bench {
    fn buffer(&self, dtype: DType, len: usize) -> Result<Buffer> {
        let mut state = 1u32;
        let values: Vec<f32> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state as f32 / 2f32.powi(31) - 1.0
            })
            .collect();
        let values = self.device.upload(Class::Workspace, &values)?;
        let mut buffer = self.device.allocate(Class::Workspace, dtype, len)?;
        self.kernels().copy(buffer.view_mut(), values.view())?;
        Ok(buffer)
    }

    fn floats(&self, len: usize) -> Result<Buffer> {
        self.buffer(self.dtype, len)
    }

    fn kernels(&self) -> &dyn Kernels {
        self.device.kernels()
    }

    /// `x[rows, depth] · w[columns, depth]ᵀ` and its two gradients.
    fn linear(
        &self,
        table: &mut Table,
        name: &str,
        (rows, depth, columns): (usize, usize, usize),
        calls: usize,
    ) -> Result<()> {
        let (mut x, mut w, mut y) =
            (self.floats(rows * depth)?, self.floats(columns * depth)?, self.floats(rows * columns)?);
        let flops = 2.0 * (rows * depth * columns) as f64;
        let forward = time(|| {
            let out = Matrix::new(y.view_mut(), rows, columns);
            let (x, w) = (Matrix::new(x.view(), rows, depth), Matrix::new(w.view(), columns, depth));
            self.kernels().matmul(out, x, w.t(), Write::Replace)
        })?;
        table.row(&format!("{name} {rows}×{depth}×{columns}"), forward, calls, flops, "GFLOP/s");
        let dx = time(|| {
            let out = Matrix::new(x.view_mut(), rows, depth);
            let (y, w) = (Matrix::new(y.view(), rows, columns), Matrix::new(w.view(), columns, depth));
            self.kernels().matmul(out, y, w, Write::Replace)
        })?;
        table.row(&format!("{name} {rows}×{columns}×{depth}"), dx, calls, flops, "GFLOP/s");
        let dw = time(|| {
            let out = Matrix::new(w.view_mut(), columns, depth);
            let (y, x) = (Matrix::new(y.view(), rows, columns), Matrix::new(x.view(), rows, depth));
            self.kernels().matmul(out, y.t(), x, Write::Replace)
        })?;
        table.row(&format!("{name} {columns}×{rows}×{depth}"), dw, calls, flops, "GFLOP/s");
        Ok(())
    }

    fn attention(&self, table: &mut Table, preset: &Preset) -> Result<()> {
        let Preset { heads, tokens, batch, width, layers, .. } = *preset;
        let shape = AttentionShape { batch, tokens, heads, kv_heads: heads, head_dim: width / heads };
        let mut qkv = self.floats(shape.rows() * shape.packed_width())?;
        let mut dqkv = self.floats(shape.rows() * shape.packed_width())?;
        let (mut out, dout) = (self.floats(shape.rows() * width)?, self.floats(shape.rows() * width)?);
        let mut log_sum = self.buffer(DType::F32, shape.rows() * heads)?;
        let flops = 2.0 * (batch * tokens * tokens * width) as f64;
        let forward = time(|| {
            self.kernels().attention(Attention {
                out: out.view_mut(),
                log_sum: log_sum.view_mut(),
                qkv: qkv.view(),
                shape,
            })
        })?;
        table.row("attention (causal half)", forward, layers, flops, "GFLOP/s");
        let backward = time(|| {
            let (out, log_sum) = (out.view(), log_sum.view());
            self.kernels().attention_backward(AttentionBackward {
                dqkv: dqkv.view_mut(),
                dout: dout.view(),
                qkv: qkv.view(),
                out,
                log_sum,
                shape,
            })
        })?;
        table.row("attention_backward", backward, layers, 2.5 * flops, "GFLOP/s");
        let rope = Rope {
            attention: shape,
            theta: 1e4,
            scaling: RopeScaling::None,
            first_position: 0,
            inverse: false,
        };
        let turn = time(|| self.kernels().rope(qkv.view_mut(), rope))?;
        let bytes = 2 * self.dtype.size() * shape.rows() * 2 * width;
        table.row("rope", turn, 2 * layers, bytes as f64, "GB/s");
        Ok(())
    }

    fn norm(&self, table: &mut Table, shape: RowShape, calls: usize) -> Result<()> {
        let len = shape.rows * shape.width;
        let (x, mut out, weight) = (self.floats(len)?, self.floats(len)?, self.floats(shape.width)?);
        let (mut inverse, mut dweight) = (self.buffer(DType::F32, shape.rows)?, self.floats(shape.width)?);
        let bytes = (self.dtype.size() * len) as f64;
        let kernels = self.kernels();
        let forward = time(|| {
            kernels.rms_norm(RmsNorm {
                out: out.view_mut(),
                inverse_rms: inverse.view_mut(),
                x: x.view(),
                weight: weight.view(),
                shape: shape.into(),
                eps: 1e-5,
            })
        })?;
        table.row("rms_norm", forward, calls, 2.0 * bytes, "GB/s");
        kernels.fill(inverse.view_mut(), 1e-9)?;
        let dout = self.floats(len)?;
        let backward = time(|| {
            let (dout, x, weight) = (dout.view(), x.view(), weight.view());
            let outputs = (out.view_mut(), dweight.view_mut());
            kernels.rms_norm_backward(RmsNormBackward {
                dx: outputs.0,
                dweight: outputs.1,
                write: Write::Replace,
                dout: Some(dout),
                x,
                weight,
                inverse_rms: inverse.view(),
                shape: shape.into(),
            })
        })?;
        table.row("rms_norm_backward", backward, calls, 4.0 * bytes, "GB/s");
        let add = time(|| {
            kernels.add(out.view_mut(), x.view())?;
            kernels.copy(out.view_mut(), x.view())
        })?;
        table.row("add and copy", add, calls, 5.0 * bytes, "GB/s");
        Ok(())
    }

    fn swiglu(&self, table: &mut Table, shape: RowShape, calls: usize) -> Result<()> {
        let len = shape.rows * shape.width;
        let (x, mut dx, mut out) = (self.floats(2 * len)?, self.floats(2 * len)?, self.floats(len)?);
        let bytes = (self.dtype.size() * len) as f64;
        let forward =
            time(|| self.kernels().swiglu(Swiglu { out: out.view_mut(), gate_up: x.view(), shape }))?;
        table.row("swiglu", forward, calls, 3.0 * bytes, "GB/s");
        let backward = time(|| {
            self.kernels().swiglu_backward(SwigluBackward {
                dgate_up: dx.view_mut(),
                dout: out.view(),
                gate_up: x.view(),
                shape,
            })
        })?;
        table.row("swiglu_backward", backward, calls, 5.0 * bytes, "GB/s");
        Ok(())
    }

    fn ends(&self, table: &mut Table, shape: RowShape) -> Result<()> {
        let RowShape { rows, width } = shape;
        let ids: Vec<u32> = (0..rows as u32).map(|i| i * 7919 % VOCABULARY as u32).collect();
        let ids = self.device.upload(Class::Workspace, &ids)?;
        let (mut embeddings, mut x) = (self.floats(VOCABULARY * width)?, self.floats(rows * width)?);
        let bytes = (self.dtype.size() * rows * width) as f64;
        let kernels = self.kernels();
        let forward = time(|| {
            kernels.embedding(Embedding {
                out: x.view_mut(),
                table: embeddings.view(),
                ids: ids.view(),
                shape,
                vocabulary: VOCABULARY,
            })
        })?;
        table.row("embedding", forward, 1, 2.0 * bytes, "GB/s");
        let backward = time(|| {
            kernels.embedding_backward(EmbeddingBackward {
                dtable: embeddings.view_mut(),
                write: Write::Replace,
                dout: x.view(),
                ids: ids.view(),
                shape,
                vocabulary: VOCABULARY,
            })
        })?;
        table.row("embedding_backward", backward, 1, bytes, "GB/s");
        let (mut logits, mut losses) = (self.floats(rows * VOCABULARY)?, self.buffer(DType::F32, rows)?);
        let shape = RowShape { rows, width: VOCABULARY };
        let loss = time(|| {
            kernels.cross_entropy(CrossEntropy {
                losses: losses.view_mut(),
                logits: logits.view_mut(),
                targets: ids.view(),
                gradient_scale: 1.0,
                shape,
            })
        })?;
        table.row("cross_entropy", loss, 1, 2.0 * (self.dtype.size() * rows * VOCABULARY) as f64, "GB/s");
        Ok(())
    }

    fn optimizer(&self, table: &mut Table, len: usize) -> Result<()> {
        let [mut master, mut momentum, mut variance] =
            [self.buffer(DType::F32, len)?, self.buffer(DType::F32, len)?, self.buffer(DType::F32, len)?];
        self.kernels().fill(variance.view_mut(), 1.0)?;
        let gradients = self.floats(len)?;
        let update = AdamW {
            lr: 1e-9,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            step: Some(9),
            gradient_scale: 1.0,
        };
        let kernels = self.kernels();
        let step = time(|| {
            let states = (master.view_mut(), momentum.view_mut(), variance.view_mut());
            kernels.adamw(AdamWUpdate {
                master: states.0,
                momentum: states.1,
                variance: states.2,
                gradients: gradients.view(),
                settings: update,
                parameters: None,
                len,
            })
        })?;
        table.row("adamw", step, 1, ((24 + self.dtype.size()) * len) as f64, "GB/s");
        let bytes = (self.dtype.size() * len) as f64;
        table.row(
            "max_magnitude",
            time(|| kernels.max_magnitude(&[gradients.view()]).map(drop))?,
            1,
            bytes,
            "GB/s",
        );
        table.row(
            "sum_of_squares",
            time(|| kernels.sum_of_squares(&[gradients.view()], 1).map(drop))?,
            1,
            bytes,
            "GB/s",
        );
        Ok(())
    }

    fn preset(&self, preset: &Preset) -> Result<()> {
        let Preset { name, width, layers, hidden, tokens, batch, .. } = *preset;
        let rows = batch * tokens;
        println!("\n{name}: {rows} tokens");
        let mut table = Table { matmul: 0.0, other: 0.0 };
        self.linear(&mut table, "qkv", (rows, width, 3 * width), layers)?;
        self.linear(&mut table, "out", (rows, width, width), layers)?;
        self.linear(&mut table, "gate, up", (rows, width, 2 * hidden), layers)?;
        self.linear(&mut table, "down", (rows, hidden, width), layers)?;
        self.linear(&mut table, "head", (rows, width, VOCABULARY), 1)?;
        self.attention(&mut table, preset)?;
        self.norm(&mut table, RowShape { rows, width }, 2 * layers + 1)?;
        self.swiglu(&mut table, RowShape { rows, width: hidden }, layers)?;
        self.ends(&mut table, RowShape { rows, width })?;
        self.optimizer(
            &mut table,
            layers * (4 * width * width + 3 * width * hidden) + 2 * VOCABULARY * width,
        )?;
        let (matmul, all) = (1e3 * table.matmul, 1e3 * (table.matmul + table.other));
        println!(
            "  matmul {matmul:.2} of {all:.2} ms: {:.0} %; {:.0} tokens/s",
            100.0 * matmul / all,
            1e3 * rows as f64 / all
        );
        Ok(())
    }
}

fn main() -> Result<()> {
    // Cargo adds a flag of its own.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let dtype = match arguments.next().as_deref() {
        Some("bf16") => DType::Bf16,
        Some("f16") => DType::F16,
        _ => DType::F32,
    };
    let threads = arguments.next().and_then(|threads| threads.parse().ok()).unwrap_or(1);
    println!(
        "{dtype}, {threads} thread(s); matmul peak {:.1} GFLOP/s, the processor's limit {:.1}",
        matmul_peak(threads)?,
        multiply_add_peak(threads, dtype)
    );
    let bench = Bench { device: Device::cpu(Ledger::new(Emitter::silent(0), None), threads), dtype };
    let chosen = arguments.next();
    let chosen = |preset: &&Preset| chosen.as_deref().is_none_or(|name| name == preset.name);
    PRESETS.iter().filter(chosen).try_for_each(|preset| bench.preset(preset))
}
